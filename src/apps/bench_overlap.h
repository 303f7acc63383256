// `gapless bench overlap`: both loops on one workload, in alternation on one engine, so that whatever else
// the machine does meets both alike.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/args.h"
#include "apps/progress.h"
#include "apps/statistics.h"
#include "apps/trace_report.h"
#include "device/sim/sim_device.h"
#include "engine/engine.h"

namespace gapless {

// What one loop did between two moments at which nothing was in flight.
struct LoopSlice {
  double begin = 0, end = 0;  // steady_seconds()
  int64_t tokens = 0, steps = 0, wasted_rows = 0, recalls = 0, memory_stalls = 0, retractions = 0;
  std::map<std::string, double> cpu;  // seconds, by thread name
  std::vector<FileSpan> device;       // steps, microseconds of steady_seconds()
  std::vector<FileSpan> idle;         // of the scheduler

  double seconds() const { return end - begin; }
  double rate() const { return seconds() > 0 ? double(tokens) / seconds() : 0; }
};

// All slices of one loop.
struct LoopFigures {
  double tokens_s = 0;
  double device_limited = 0;       // tokens/s if its steps had followed one another without a gap
  double busy = 0;                 // share of the slices' time in which the device computed
  double step_us = 0, gap_us = 0;  // mean per step
  Lengths gaps;                    // between all steps while there was work
  SteadyDecode steady;             // of decode steps in a row
  int64_t steps = 0, tokens = 0, wasted_rows = 0, recalls = 0, memory_stalls = 0, retractions = 0;
  std::map<std::string, double> cpu_us;  // per step, by thread name
};
// An error when a slice has no step.
Result<LoopFigures> figures_of(const std::vector<LoopSlice>& slices);

struct OverlapReport {
  LoopFigures normal, overlap;
  RatioInterval ratio;  // overlap / normal, tokens/s
  // What the measured gaps say the ratio should be: (1 + gap/step of normal) / (1 + gap/step of overlap).
  double ratio_from_gaps = 0;
  // Overlap's rate over what the normal loop's would be without gaps. The normal loop computes no row in
  // vain.
  double of_device_limit = 0;
  std::optional<double> sim_overrun;  // share of steps, on a simulated device

  bool is_void() const { return sim_overrun.value_or(0) > kMaxSimOverrun; }
};
Result<OverlapReport> overlap_report(const std::vector<LoopSlice>& normal,
                                     const std::vector<LoopSlice>& overlap);

std::string overlap_text(const BenchOverlapArgs& args, const OverlapReport& report);
std::string overlap_json(const BenchOverlapArgs& args, const OverlapReport& report);

// Requests at random times, both loops in turns (bench_poisson.cc). Rate 0: half of what the normal loop
// does.
struct PoissonReport {
  double rate = 0;
  Lengths normal, overlap;  // time to first token, microseconds
  RatioInterval ratio;      // of the mean times of each pair of runs
};
Result<PoissonReport> measure_poisson(const BenchOverlapArgs& args, Engine& engine, Progress& progress);
std::string poisson_text(const PoissonReport& report);
std::string poisson_json(const BenchOverlapArgs& args, const PoissonReport& report);

// Lets a loop run for some seconds. What was in flight is ended before and at the end, so every step and
// token of the slice is of that loop. An error when the trace does not keep all its steps.
Result<LoopSlice> run_slice(Engine& engine, EventLoop loop, double seconds);

}  // namespace gapless
