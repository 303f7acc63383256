// Where workers without work sleep. A notify costs one load as long as nobody does.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace gapless {

class Parking {
 public:
  // Sleeps until notified, unless ready() holds already; may return early. What ready() reads must be written
  // before notify() with sequentially consistent operations: then either the sleeper sees the change or the
  // notifier sees the sleeper.
  template <class Ready>
  void park(Ready ready) {
    parked_.fetch_add(1);
    const uint32_t seen = wakes_.load();
    if (!ready()) syscall(SYS_futex, &wakes_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    parked_.fetch_sub(1);
  }

  // Wakes up to `count` sleepers.
  void notify(int count) {
    if (parked_.load() == 0) return;
    wakes_.fetch_add(1);
    syscall(SYS_futex, &wakes_, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> wakes_{0};
  std::atomic<uint32_t> parked_{0};
};

}  // namespace gapless
