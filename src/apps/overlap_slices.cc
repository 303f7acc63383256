// Slices of bench overlap: how one is measured, and what they add up to.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "apps/bench_overlap.h"
#include "base/thread_cpu.h"
#include "base/trace_names.h"

namespace gapless {

namespace {

struct Snapshot {
  double time = 0;
  SchedulerStats stats;
  std::map<std::string, double> cpu;
};

// Time and counts are those of the moment without a batch in flight; the threads' clocks are read a little
// later.
Result<Snapshot> drained(Engine& engine, EventLoop loop) {
  Snapshot snapshot;
  const bool switched = switch_loop_and_wait(engine, loop, [&] {
    snapshot.time = steady_seconds();
    snapshot.stats = engine.scheduler().stats();
  });
  if (!switched) return Status::internal("the engine has stopped");
  snapshot.cpu = thread_cpu_seconds();
  return snapshot;
}

// The spans of a ring that lie within the slice; names: empty for all.
std::vector<FileSpan> spans_within(Engine& engine, const char* ring, std::vector<const TraceName*> names,
                                   const LoopSlice& slice) {
  std::vector<FileSpan> spans;
  for (const TraceRecord& record : engine.tracer().ring(ring).read(slice.begin)) {
    if (record.begin < slice.begin || record.end > slice.end) continue;
    if (std::find(names.begin(), names.end(), record.name) == names.end()) continue;
    spans.push_back({.name = record.name->text, .begin = record.begin * 1e6, .end = record.end * 1e6});
  }
  std::sort(spans.begin(), spans.end(),
            [](const FileSpan& a, const FileSpan& b) { return a.begin < b.begin; });
  return spans;
}

// One trace of all slices of a loop. What lies between two of them is idleness.
TraceFile joined(const std::vector<LoopSlice>& slices) {
  FileThread device{trace::kDevice, {}, 0}, scheduler{trace::kScheduler, {}, 0};
  for (const LoopSlice& slice : slices) {
    if (!device.spans.empty() && !slice.device.empty()) {
      scheduler.spans.push_back(
          {.name = trace::kIdle.text, .begin = device.spans.back().end, .end = slice.device.front().begin});
    }
    device.spans.insert(device.spans.end(), slice.device.begin(), slice.device.end());
    scheduler.spans.insert(scheduler.spans.end(), slice.idle.begin(), slice.idle.end());
  }
  return {{std::move(scheduler), std::move(device)}};
}

double device_us(const std::vector<LoopSlice>& slices) {
  double sum = 0;
  for (const LoopSlice& slice : slices)
    for (const FileSpan& step : slice.device) sum += step.length();
  return sum;
}

}  // namespace

Result<LoopSlice> run_slice(Engine& engine, EventLoop loop, double seconds) {
  ASSIGN_OR_RETURN(const Snapshot before, drained(engine, loop));
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  ASSIGN_OR_RETURN(const Snapshot after, drained(engine, loop));
  LoopSlice slice;
  slice.begin = before.time;
  slice.end = after.time;
  const SchedulerStats &a = before.stats, &b = after.stats;
  slice.tokens = b.generation_tokens - a.generation_tokens;
  slice.steps = b.steps - a.steps;
  slice.wasted_rows = b.wasted_rows - a.wasted_rows;
  slice.recalls = b.recalls - a.recalls;
  slice.memory_stalls = b.memory_stalls - a.memory_stalls;
  slice.retractions = b.retractions - a.retractions;
  for (const auto& [name, time] : after.cpu) {
    const auto earlier = before.cpu.find(name);
    slice.cpu[name] = time - (earlier == before.cpu.end() ? 0 : earlier->second);
  }
  slice.device =
      spans_within(engine, trace::kDevice, {&trace::kDecode, &trace::kExtend, &trace::kMixed}, slice);
  slice.idle = spans_within(engine, trace::kScheduler, {&trace::kIdle}, slice);
  if (int64_t(slice.device.size()) < slice.steps)
    return Status::invalid(
        "--slice-seconds: {} steps in a slice are more than the trace keeps ({}); take a shorter one",
        slice.steps, slice.device.size());
  return slice;
}

Result<LoopFigures> figures_of(const std::vector<LoopSlice>& slices) {
  LoopFigures out;
  double seconds = 0;
  std::map<std::string, double> cpu;
  for (const LoopSlice& slice : slices) {
    seconds += slice.seconds();
    out.steps += slice.steps;
    out.tokens += slice.tokens;
    out.wasted_rows += slice.wasted_rows;
    out.recalls += slice.recalls;
    out.memory_stalls += slice.memory_stalls;
    out.retractions += slice.retractions;
    for (const auto& [name, time] : slice.cpu) cpu[name] += time;
  }
  if (out.steps == 0) return Status::invalid("no step ended within a slice: take longer --slice-seconds");
  ASSIGN_OR_RETURN(const TraceReport trace, analyse_trace(joined(slices), 0));
  const double device = device_us(slices), count = double(trace.step_count());
  out.tokens_s = double(out.tokens) / seconds;
  out.device_limited = device > 0 ? double(out.tokens) / (device * 1e-6) : 0;
  out.busy = device * 1e-6 / seconds;
  out.step_us = device / count;
  out.gap_us = trace.gaps.sum / count;
  out.gaps = trace.gaps;
  out.steady = trace.steady;
  for (const auto& [name, time] : cpu) out.cpu_us[name] = time * 1e6 / double(out.steps);
  return out;
}

Result<OverlapReport> overlap_report(const std::vector<LoopSlice>& normal,
                                     const std::vector<LoopSlice>& overlap) {
  OverlapReport report;
  ASSIGN_OR_RETURN(report.normal, figures_of(normal));
  ASSIGN_OR_RETURN(report.overlap, figures_of(overlap));
  std::vector<double> a, b;
  for (const LoopSlice& slice : normal) a.push_back(slice.rate());
  for (const LoopSlice& slice : overlap) b.push_back(slice.rate());
  report.ratio = ratio_interval(a, b);
  const auto slowdown = [](const LoopFigures& f) { return f.step_us > 0 ? 1 + f.gap_us / f.step_us : 1; };
  report.ratio_from_gaps = slowdown(report.normal) / slowdown(report.overlap);
  if (report.normal.device_limited > 0)
    report.of_device_limit = report.overlap.tokens_s / report.normal.device_limited;
  return report;
}

}  // namespace gapless
