#include "apps/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"

namespace gapless {

namespace {

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t set = ending_signals();
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, nullptr), 0);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK_GE(fd_, 0);
}

Signals::~Signals() {
  close(fd_);
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

int Signals::take() {
  signalfd_siginfo info;
  return read(fd_, &info, sizeof info) == sizeof info ? int(info.ssi_signo) : 0;
}

bool Signals::wait(int other_fd, std::chrono::milliseconds timeout) {
  pollfd fds[2] = {{fd_, POLLIN, 0}, {other_fd, POLLIN, 0}};
  poll(fds, other_fd < 0 ? 1 : 2, int(timeout.count()));
  return (fds[0].revents & POLLIN) != 0;
}

}  // namespace gapless
