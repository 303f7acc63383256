// What one viewer of the live view has not been sent yet. The feed's thread puts, the http thread takes. A
// viewer that reads slowly gets what is newest; what it was too slow for is dropped, never kept.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gapless {

// An event of the stream, shared by all viewers.
struct LiveEvent {
  enum class Kind : uint8_t { kHello, kFrame, kState } kind;
  std::string fields;  // of its JSON object, without the braces; not empty
  // JSON objects that say what the spans' name indices mean. A viewer is sent those that it lacks. Null in a
  // state.
  std::shared_ptr<const std::vector<std::string>> names;
};

class LiveInbox {
 public:
  // wake: called without a lock held when there is something to take and was nothing before.
  explicit LiveInbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Feed's thread.
  void put(std::shared_ptr<const LiveEvent> event);
  // Any thread: nothing follows.
  void end();

  // http thread. The text of all that waits.
  struct Taken {
    std::string text;
    bool ended = false;
  };
  Taken take();

 private:
  void write(const LiveEvent& event, std::string& out);

  const std::function<void()> wake_;
  size_t names_sent_ = 0;  // http thread
  std::mutex mutex_;
  std::deque<std::shared_ptr<const LiveEvent>> waiting_;
  bool ended_ = false;
};

}  // namespace gapless
