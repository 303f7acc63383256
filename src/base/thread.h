// Named threads, joined on destruction, and the role checks that say which thread may call what.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/check.h"

namespace gapless {

class NamedThread {
 public:
  NamedThread() = default;
  // name: at most 15 characters, as shown by `ps -L` and debuggers.
  NamedThread(const std::string& name, std::function<void()> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&& other);
  ~NamedThread() { join(); }
  void join();

 private:
  std::thread thread_;
};

void set_current_thread_name(const std::string& name);

// A role belongs to the first thread that asserts it, until released. Put DCHECK(role_.is_mine()) at a class
// border.
class ThreadRole {
 public:
  bool is_mine() const {
    std::thread::id none{}, me = std::this_thread::get_id();
    return owner_.compare_exchange_strong(none, me) || none == me;
  }
  void release() { owner_.store(std::thread::id{}); }

 private:
  mutable std::atomic<std::thread::id> owner_{};
};

}  // namespace gapless
