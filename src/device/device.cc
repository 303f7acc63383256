#include "device/device.h"

namespace gapless {

void OpList::clear() {
  ops_.clear();
  block_ = 0;
  used_ = 0;
  tag = {};
}

void* OpList::allocate(size_t bytes, size_t align) {
  CHECK_LE(bytes + align, kBlockBytes);
  for (;; ++block_, used_ = 0) {
    if (block_ >= blocks_.size()) {
      blocks_.push_back(std::make_unique<std::byte[]>(kBlockBytes));
      block_ = blocks_.size() - 1;
    }
    const auto base = reinterpret_cast<uintptr_t>(blocks_[block_].get());
    const uintptr_t begin = (base + used_ + align - 1) & ~uintptr_t(align - 1);
    if (begin + bytes > base + kBlockBytes) continue;
    used_ = begin + bytes - base;
    return reinterpret_cast<void*>(begin);
  }
}

Status HostEvent::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready(); });
  return status_;
}

void HostEvent::set(Status status, StepTimes times) {
  Callback callback;  // destroyed without the lock: it may own what owns this event
  {
    std::lock_guard lock(mutex_);
    CHECK(!ready(), "an event is set once");
    status_ = std::move(status);
    times_ = times;
    callback = std::exchange(callback_, nullptr);
    ready_.store(true, std::memory_order_release);
    if (callback) callback(status_);
    // Under the lock: a waiter that is woken may destroy the event as soon as it has the lock.
    changed_.notify_all();
  }
}

void HostEvent::on_set(Callback callback) {
  {
    std::lock_guard lock(mutex_);
    CHECK(!callback_, "an event has one callback");
    if (!ready()) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback(status_);
}

}  // namespace gapless
