// The shared state behind a ticket. Only workers (and test workers) include this.
#pragma once

#include <atomic>
#include <memory>

#include "device/device.h"
#include "worker/model_worker_batch.h"

namespace gapless {

struct LaunchState {
  explicit LaunchState(uint64_t id) : batch_id(id) {}
  virtual ~LaunchState() = default;
  // Reads the host result buffers. Called once, after copy_done completed with `status`.
  virtual BatchResult collect(Status status) = 0;

  // Who comes first, the device that takes the batch or the scheduler that recalls it: one compare-exchange.
  // All that the queued ops of a recalled step ever read is this word.
  bool try_take() { return leave_queue(Word::kTaken) && (launch_done.set(), true); }
  bool try_recall() { return leave_queue(Word::kRecalled); }
  bool recalled() const { return word_.load(std::memory_order_acquire) == Word::kRecalled; }

  const uint64_t batch_id;
  std::atomic<bool> collected{false};  // what the result was read from may be used again
  HostEvent launch_done;
  HostEvent copy_done;  // its times are the device's

 private:
  enum class Word : uint8_t { kQueued, kTaken, kRecalled };
  bool leave_queue(Word to) {
    Word expected = Word::kQueued;
    return word_.compare_exchange_strong(expected, to, std::memory_order_acq_rel);
  }
  std::atomic<Word> word_{Word::kQueued};
};

}  // namespace gapless
