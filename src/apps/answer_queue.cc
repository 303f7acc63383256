#include "apps/answer_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace gapless {

AnswerQueue::AnswerQueue() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK_GE(fd_, 0);
}

AnswerQueue::~AnswerQueue() {
  close(fd_);
}

void AnswerQueue::on_event(ResponseEvent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  CHECK_EQ(eventfd_write(fd_, 1), 0);
}

std::deque<ResponseEvent> AnswerQueue::take() {
  std::lock_guard lock(mutex_);
  eventfd_t count;
  (void)eventfd_read(fd_, &count);  // nothing there is no error
  return std::exchange(events_, {});
}

}  // namespace gapless
