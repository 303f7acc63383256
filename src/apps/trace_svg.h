// A stretch of a trace as a picture: one lane for each thread and the device, time from left to right.
#pragma once

#include <string>

#include "apps/trace_report.h"

namespace gapless {

// The stretch that is drawn, in microseconds from the trace's start.
struct TraceWindow {
  double begin = 0, end = 0;
};

// `count` steps that follow one another, as long with their gaps as the median of all such: of the longest
// steady decode if there is one.
TraceWindow typical_steps(const TraceFile& trace, const TraceReport& report, size_t count);

// An SVG document. Time between two steps of the device is shaded over all lanes. An error when there is
// nothing to draw, or more than can be told apart.
Result<std::string> trace_svg(const TraceFile& trace, const TraceWindow& window);

}  // namespace gapless
