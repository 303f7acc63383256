// A queue between threads that can be closed. Any number of producers, one consumer by convention.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gapless {

template <class T>
class Queue {
 public:
  explicit Queue(size_t capacity = SIZE_MAX) : capacity_(capacity) {}

  // False when the queue is full or closed; the item is then untouched. Never blocks.
  bool try_push(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Blocks until there is an item; nullopt when closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Appends everything that is there to `out`. With `wait` it blocks until there is something, the queue is
  // closed or poked.
  void drain(bool wait, std::vector<T>& out) {
    std::unique_lock lock(mutex_);
    if (wait) ready_.wait(lock, [&] { return closed_ || poked_ || !items_.empty(); });
    poked_ = false;
    for (T& item : items_) out.push_back(std::move(item));
    items_.clear();
  }
  // Makes the consumer's waiting drain() return, now or when it comes: something else that it waits for has
  // happened. Any thread.
  void poke() {
    {
      std::lock_guard lock(mutex_);
      poked_ = true;
    }
    ready_.notify_one();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  // What is queued can still be taken; nothing more goes in.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  const size_t capacity_;
  bool closed_ = false, poked_ = false;
};

}  // namespace gapless
