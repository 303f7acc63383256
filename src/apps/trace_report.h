// What a trace says: how busy the device was, how long it waited between steps, and what the host did then.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/trace_file.h"

namespace gapless {

// Of a set of lengths, in microseconds. Percentiles by nearest rank; all 0 for no lengths.
struct Lengths {
  size_t count = 0;
  double sum = 0, p50 = 0, p99 = 0, max = 0;

  double mean() const { return count == 0 ? 0 : sum / double(count); }
};
Lengths lengths_of(std::vector<double> values);

// What a thread did in some stretch of time: names of spans and their shares of it, the largest first. Time
// within several spans goes to the innermost.
struct Activity {
  std::string thread;
  std::vector<std::pair<std::string, double>> shares;
};

// Times in a file are whole nanoseconds: less between two steps is nothing.
inline constexpr double kNoGap = 0.0025;

inline double gap_between(const FileSpan& before, const FileSpan& after) {
  const double length = after.begin - before.end;
  return length > kNoGap ? length : 0;
}

// Between two steps, while there was work.
struct DeviceGap {
  FileSpan before, after;  // the steps
  std::vector<Activity> host;

  double length() const { return gap_between(before, after); }
};

// One kind of span on one thread.
struct TracePhase {
  std::string thread, name;
  Lengths lengths;
};

// Decode steps after one another, with work all the time.
struct SteadyDecode {
  size_t stretches = 0, steps = 0;
  double busy = 0;  // share of the time between a stretch's first begin and last end
  Lengths gaps;
  double longest_begin = 0, longest_end = 0;  // of the longest stretch, microseconds
};

struct TraceReport {
  double begin = 0, end = 0;      // first step's begin, last step's end, microseconds
  std::vector<TracePhase> steps;  // by kind
  double busy = 0;                // share of that time
  double busy_with_work = 0;      // the same without the gaps in which the scheduler had nothing to run
  size_t idle_gaps = 0;
  Lengths gaps;  // those with work; a gap of length 0 counts
  SteadyDecode steady;
  std::vector<DeviceGap> longest;
  std::vector<TracePhase> phases;
  Lengths wake;

  size_t step_count() const;
};

// Fewer decode steps in a row say little about a steady state.
inline constexpr size_t kSteadySteps = 16;

// longest: how many gaps to describe. An error when the trace has no step. Where the scheduler's ring was
// overwritten, only the time that it covers counts: without its spans a gap cannot be told from idleness.
Result<TraceReport> analyse_trace(const TraceFile& trace, size_t longest);

// The steps on the device, by begin.
std::vector<FileSpan> device_steps(const TraceFile& trace);

std::string report_text(const TraceReport& report);
std::string report_json(const TraceReport& report);

}  // namespace gapless
