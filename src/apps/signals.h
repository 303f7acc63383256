// SIGINT and SIGTERM as something to poll for: no handler, no thread, no global. Create it before the first
// thread starts, because threads inherit the blocked signals.
#pragma once

#include <chrono>

namespace gapless {

class Signals {
 public:
  Signals();   // blocks SIGINT and SIGTERM in this thread and all it creates
  ~Signals();  // unblocks them
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  // The number of a signal that has come, or 0. Never blocks.
  int take();
  // Blocks until a signal comes, `other_fd` (-1: none) can be read, or the time is over (negative: for ever).
  // True: a signal.
  bool wait(int other_fd, std::chrono::milliseconds timeout);

 private:
  int fd_;
};

}  // namespace gapless
