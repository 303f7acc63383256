// Where the engine's events of one HTTP request wait until the http thread takes them. Deltas of one choice
// that nobody has taken yet are merged, so a slow reader gets fewer and larger pieces, and costs no more
// memory than its answer is long.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/engine_api.h"
#include "server/server_metrics.h"

namespace gapless {

class EventInbox : public std::enable_shared_from_this<EventInbox> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // What came for one prompt since the last take, in the order of the members.
  struct PromptEvents {
    std::optional<Accepted> accepted;
    std::optional<PromptScored> scored;
    std::vector<ChoiceDelta> deltas;  // at most one per choice
    std::optional<Done> done;
    std::optional<Failed> failed;
  };
  struct Times {
    std::optional<TimePoint> first_token, last_token;
  };

  // wake: called, on an engine thread and without a lock held, when there is something to take and nobody was
  // told yet.
  EventInbox(int32_t prompts, int32_t choices_per_prompt, TimePoint received,
             std::shared_ptr<ServerMetrics> metrics, std::function<void()> wake);

  // The sink to submit prompt `index` with.
  std::shared_ptr<ResponseSink> sink(int32_t index);
  // http thread. One entry per prompt.
  std::vector<PromptEvents> take();
  // About what the waiting events occupy. Any thread.
  int64_t backlog_bytes() const;
  Times times() const;

 private:
  class Sink;
  struct ChoiceClock {
    std::optional<TimePoint> last_token;
  };

  void on_event(int32_t prompt, ResponseEvent event);
  void add_delta(int32_t prompt, ChoiceDelta delta);
  void measure(int32_t prompt, const ChoiceDelta& delta);

  const int32_t choices_per_prompt_;
  const TimePoint received_;
  const std::shared_ptr<ServerMetrics>
      metrics_;  // shared: the engine may keep a sink longer than the server lives
  const std::function<void()> wake_;

  mutable std::mutex mutex_;
  std::vector<PromptEvents> events_;
  std::vector<ChoiceClock> clocks_;  // prompt * choices_per_prompt_ + choice
  Times times_;
  int64_t backlog_bytes_ = 0;
  bool woken_ = false;
};

}  // namespace gapless
