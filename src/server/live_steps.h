// What the device did in one frame of the live view: its steps and the gaps between them, found in the spans
// of the device and of the scheduler as `gapless trace` finds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/trace.h"

namespace gapless {

// Times and lengths are seconds.
struct StepsReport {
  int64_t n = 0, rows = 0, tokens = 0;
  // Share of the time that the device computed. The time is that of the steps and of what was between them,
  // where idleness counts for one frame at most: what lies before it is another frame's.
  double busy = 0;
  // From a step's end to the next one's begin while there was work: the scheduler was not idle in between.
  struct Gap {
    double at, length;  // at: the end of the first of both steps
  };
  std::vector<Gap> gaps;
};

struct GapFigures {
  double mean = 0, p50 = 0, p99 = 0, max = 0;
};
GapFigures figures_of(std::span<const StepsReport::Gap> gaps);

// At most `count` of them, in order: of each stretch the longest.
std::vector<StepsReport::Gap> longest_of_stretches(std::span<const StepsReport::Gap> gaps, size_t count);

// One thread.
class StepCounter {
 public:
  // The spans written since the last call. The device's have to be read first: the scheduler writes both, and
  // its idleness before a step ahead of that step.
  StepsReport count(std::span<const TraceRecord> device, std::span<const TraceRecord> scheduler,
                    double frame_seconds);
  // Spans were lost: what follows is not compared with what was before.
  void restart() { last_ended_ = 0; }

 private:
  double last_ended_ = 0;  // of the newest step; 0: none yet
  bool idle_since_ = false;
};

}  // namespace gapless
