// Threads for CPU work on texts (tokenizing, templates), so that neither the event loop nor the scheduler
// ever does it.
#pragma once

#include <functional>
#include <vector>

#include "base/queue.h"
#include "base/thread.h"

namespace gapless {

class TextPool {
 public:
  TextPool(int threads, size_t max_queued);
  ~TextPool() { close(); }
  // False: the queue is full or the pool is closed; the job was not taken. Never blocks. Any thread.
  bool run(std::function<void()> job) { return queue_.try_push(std::move(job)); }
  // Finishes what is queued, then joins. Idempotent; not from a job.
  void close();

 private:
  Queue<std::function<void()>> queue_;
  std::vector<NamedThread> threads_;
};

}  // namespace gapless
