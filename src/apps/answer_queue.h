// The events of one request, handed from the engine's thread to the one that asked, which can poll for them.
#pragma once

#include <deque>
#include <mutex>

#include "engine/engine_api.h"

namespace gapless {

class AnswerQueue : public ResponseSink {
 public:
  AnswerQueue();
  ~AnswerQueue() override;
  void on_event(ResponseEvent event) override;  // an engine thread
  int fd() const { return fd_; }                // readable when there is something to take
  std::deque<ResponseEvent> take();             // never blocks

 private:
  std::mutex mutex_;
  std::deque<ResponseEvent> events_;
  int fd_;
};

}  // namespace gapless
