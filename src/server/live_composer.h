// Makes the events of the live view, once for all viewers, of what the rings and the scheduler's snapshots
// hold. Thread of the feed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_api.h"
#include "scheduler/snapshot.h"
#include "server/live_inbox.h"
#include "server/live_steps.h"

namespace gapless {

// What one viewer is sent at most.
inline constexpr size_t kLiveBytesPerSecond = 200'000;
inline constexpr int kLiveFramesPerSecond = 10, kLiveStatesPerSecond = 2;

class LiveComposer {
 public:
  // Frames begin now.
  explicit LiveComposer(EngineApi& engine);

  std::shared_ptr<const LiveEvent> hello();
  // Everything that was written since the last frame. Where its spans are more than a viewer may be sent,
  // only those of its newest part.
  std::shared_ptr<const LiveEvent> frame();
  std::shared_ptr<const LiveEvent> state(const SchedulerSnapshot& snapshot);

 private:
  struct Ring {
    const TraceRing* ring;
    uint64_t cursor;
    std::vector<TraceRecord> fresh;
  };
  struct Span {
    size_t ring;
    const TraceRecord* record;
  };

  // False: some were overwritten before they could be read.
  bool read_rings();
  size_t spans_per_frame() const;
  std::vector<Span> newest_spans(double& from, size_t& left_out) const;
  void write_spans(std::string& out, const std::vector<Span>& spans, double from);
  size_t index_of(const TraceName& name);

  EngineApi& engine_;
  const double start_;       // of the tracer
  std::vector<Ring> rings_;  // as trace::kRings
  StepCounter steps_;
  double last_frame_;
  size_t state_bytes_ = 0;  // of the newest state: what it takes is not the frames'
  std::vector<const TraceName*> known_;
  std::shared_ptr<const std::vector<std::string>> names_;  // of known_; replaced when it grows
};

}  // namespace gapless
