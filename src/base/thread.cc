#include "base/thread.h"

#include <pthread.h>

namespace gapless {

NamedThread::NamedThread(const std::string& name, std::function<void()> body)
    : thread_([name, body = std::move(body)] {
        set_current_thread_name(name);
        body();
      }) {
  CHECK_LE(name.size(), size_t{15});
}

NamedThread& NamedThread::operator=(NamedThread&& other) {
  join();
  thread_ = std::move(other.thread_);
  return *this;
}

void NamedThread::join() {
  if (thread_.joinable()) thread_.join();
}

void set_current_thread_name(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
}

}  // namespace gapless
