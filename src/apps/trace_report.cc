#include "apps/trace_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/trace_names.h"

namespace gapless {

namespace {

bool is_step(const FileSpan& span) {
  return span.name == trace::kDecode.text || span.name == trace::kExtend.text ||
         span.name == trace::kMixed.text;
}

// The part of a thread's spans that touches a stretch of time. The spans are sorted by begin.
std::vector<const FileSpan*> touching(const FileThread& thread, double begin, double end) {
  std::vector<const FileSpan*> found;
  for (const FileSpan& span : thread.spans) {
    if (span.begin >= end) break;
    if (span.end > begin) found.push_back(&span);
  }
  return found;
}

Activity activity_of(const FileThread& thread, double begin, double end) {
  const std::vector<const FileSpan*> spans = touching(thread, begin, end);
  std::vector<double> cuts{begin, end};
  for (const FileSpan* span : spans) {
    cuts.push_back(std::clamp(span->begin, begin, end));
    cuts.push_back(std::clamp(span->end, begin, end));
  }
  std::sort(cuts.begin(), cuts.end());
  std::map<std::string, double> by_name;
  for (size_t i = 0; i + 1 < cuts.size(); i++) {
    const FileSpan* innermost = nullptr;  // the last that began
    for (const FileSpan* span : spans)
      if (span->begin <= cuts[i] && span->end >= cuts[i + 1]) innermost = span;
    if (innermost) by_name[innermost->name] += cuts[i + 1] - cuts[i];
  }
  Activity activity{thread.name, {}};
  for (const auto& [name, length] : by_name) activity.shares.emplace_back(name, length / (end - begin));
  std::stable_sort(activity.shares.begin(), activity.shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return activity;
}

// When the scheduler had nothing to run. These spans follow one another.
std::vector<FileSpan> idle_spans(const FileThread* scheduler) {
  std::vector<FileSpan> idle;
  if (!scheduler) return idle;
  std::copy_if(scheduler->spans.begin(), scheduler->spans.end(), std::back_inserter(idle),
               [](const FileSpan& span) { return span.name == trace::kIdle.text; });
  return idle;
}

std::vector<TracePhase> phases_of(const FileThread& thread, double begin, double end) {
  std::map<std::string, std::vector<double>> by_name;
  for (const FileSpan* span : touching(thread, begin, end)) by_name[span->name].push_back(span->length());
  std::vector<TracePhase> phases;
  for (auto& [name, values] : by_name) phases.push_back({thread.name, name, lengths_of(std::move(values))});
  std::stable_sort(phases.begin(), phases.end(),
                   [](const TracePhase& a, const TracePhase& b) { return a.lengths.sum > b.lengths.sum; });
  return phases;
}

// Walks the steps in order, once.
class StepWalk {
 public:
  StepWalk(const TraceFile& trace, TraceReport& report)
      : idle_spans_(idle_spans(trace.find(trace::kScheduler))), report_(report) {}

  void run(const std::vector<FileSpan>& steps) {
    for (const FileSpan& step : steps) {
      const bool worked_on = !last_ || on_gap(*last_, step);
      if (!worked_on || step.name != trace::kDecode.text) end_stretch();
      if (step.name == trace::kDecode.text) stretch_.push_back(step);
      busy_ += step.length();
      last_ = &step;
    }
    end_stretch();
    finish(steps);
  }
  std::vector<DeviceGap>& gaps() { return gaps_; }

 private:
  // False: there was nothing to run.
  bool on_gap(const FileSpan& before, const FileSpan& after) {
    const double length = gap_between(before, after);
    const auto idle = std::partition_point(idle_spans_.begin(), idle_spans_.end(),
                                           [&](const FileSpan& span) { return span.end <= before.end; });
    if (length > 0 && idle != idle_spans_.end() && idle->begin < after.begin) {
      report_.idle_gaps++;
      idle_ += length;
      return false;
    }
    gaps_.push_back({before, after, {}});
    return true;
  }
  void end_stretch() {
    const std::vector<FileSpan> stretch = std::move(stretch_);
    stretch_.clear();
    if (stretch.size() < kSteadySteps) return;
    SteadyDecode& steady = report_.steady;
    steady.stretches++;
    steady.steps += stretch.size();
    for (size_t i = 0; i < stretch.size(); i++) {
      steady_busy_ += stretch[i].length();
      if (i > 0) steady_gaps_.push_back(gap_between(stretch[i - 1], stretch[i]));
    }
    const double begin = stretch.front().begin, end = stretch.back().end;
    steady_time_ += end - begin;
    if (end - begin <= steady.longest_end - steady.longest_begin) return;
    steady.longest_begin = begin;
    steady.longest_end = end;
  }
  void finish(const std::vector<FileSpan>& steps) {
    report_.begin = steps.front().begin;
    report_.end = steps.back().end;
    const double time = report_.end - report_.begin;
    report_.busy = time > 0 ? busy_ / time : 1;
    report_.busy_with_work = time > idle_ ? busy_ / (time - idle_) : 1;
    if (steady_time_ > 0) report_.steady.busy = steady_busy_ / steady_time_;
    report_.steady.gaps = lengths_of(std::move(steady_gaps_));
    std::vector<double> lengths;
    for (const DeviceGap& gap : gaps_) lengths.push_back(gap.length());
    report_.gaps = lengths_of(std::move(lengths));
  }

  const std::vector<FileSpan> idle_spans_;
  TraceReport& report_;
  const FileSpan* last_ = nullptr;
  std::vector<FileSpan> stretch_;
  std::vector<DeviceGap> gaps_;
  std::vector<double> steady_gaps_;
  double busy_ = 0, idle_ = 0, steady_busy_ = 0, steady_time_ = 0;
};

void describe_longest(const TraceFile& trace, size_t count, std::vector<DeviceGap>& gaps) {
  std::erase_if(gaps, [](const DeviceGap& gap) { return gap.length() <= 0; });
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const DeviceGap& a, const DeviceGap& b) { return a.length() > b.length(); });
  if (gaps.size() > count) gaps.resize(count);
  for (DeviceGap& gap : gaps) {
    for (const FileThread& thread : trace.threads) {
      if (thread.name == trace::kDevice) continue;
      Activity activity = activity_of(thread, gap.before.end, gap.after.begin);
      if (!activity.shares.empty()) gap.host.push_back(std::move(activity));
    }
  }
}

}  // namespace

Lengths lengths_of(std::vector<double> values) {
  Lengths lengths;
  lengths.count = values.size();
  if (values.empty()) return lengths;
  std::sort(values.begin(), values.end());
  const auto percentile = [&](double share) {
    return values[size_t(std::max(1.0, std::ceil(share * double(values.size())))) - 1];
  };
  for (const double value : values) lengths.sum += value;
  lengths.p50 = percentile(0.5);
  lengths.p99 = percentile(0.99);
  lengths.max = values.back();
  return lengths;
}

size_t TraceReport::step_count() const {
  size_t count = 0;
  for (const TracePhase& kind : steps) count += kind.lengths.count;
  return count;
}

std::vector<FileSpan> device_steps(const TraceFile& trace) {
  std::vector<FileSpan> steps;
  const FileThread* device = trace.find(trace::kDevice);
  if (!device) return steps;
  const FileThread* scheduler = trace.find(trace::kScheduler);
  const bool cut = scheduler && scheduler->overwritten > 0 && !scheduler->spans.empty();
  const double from = cut                     ? scheduler->spans.front().begin
                      : device->spans.empty() ? 0
                                              : device->spans[0].begin;
  std::copy_if(device->spans.begin(), device->spans.end(), std::back_inserter(steps),
               [&](const FileSpan& span) { return is_step(span) && span.begin >= from; });
  return steps;
}

Result<TraceReport> analyse_trace(const TraceFile& trace, size_t longest) {
  const std::vector<FileSpan> steps = device_steps(trace);
  if (!trace.find(trace::kDevice))
    return Status::invalid("the trace has no thread '{}': is it one of gapless?", trace::kDevice);
  if (steps.empty()) return Status::invalid("the trace has no step of the device: nothing ran meanwhile");
  TraceReport report;
  StepWalk walk(trace, report);
  walk.run(steps);
  report.steps = phases_of({trace::kDevice, steps, 0}, report.begin, report.end);
  std::vector<double> wakes;
  for (const FileThread& thread : trace.threads) {
    if (thread.name == trace::kDevice) continue;
    const std::vector<TracePhase> phases = phases_of(thread, report.begin, report.end);
    report.phases.insert(report.phases.end(), phases.begin(), phases.end());
    for (const TracePhase& phase : phases)
      if (thread.name == trace::kScheduler && phase.name == trace::kWake.text) report.wake = phase.lengths;
  }
  describe_longest(trace, longest, walk.gaps());
  report.longest = std::move(walk.gaps());
  return report;
}

}  // namespace gapless
