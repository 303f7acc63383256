#include "server/live_steps.h"

#include <algorithm>
#include <limits>

#include "base/trace_names.h"

namespace gapless {

GapFigures figures_of(std::span<const StepsReport::Gap> gaps) {
  if (gaps.empty()) return {};
  std::vector<double> lengths;
  double sum = 0;
  for (const StepsReport::Gap& gap : gaps) {
    lengths.push_back(gap.length);
    sum += gap.length;
  }
  std::sort(lengths.begin(), lengths.end());
  const auto at = [&](size_t percent) { return lengths[(lengths.size() - 1) * percent / 100]; };
  return {sum / double(lengths.size()), at(50), at(99), lengths.back()};
}

std::vector<StepsReport::Gap> longest_of_stretches(std::span<const StepsReport::Gap> gaps, size_t count) {
  const size_t stretch = (gaps.size() + count - 1) / count;
  std::vector<StepsReport::Gap> longest;
  for (; !gaps.empty(); gaps = gaps.subspan(std::min(stretch, gaps.size()))) {
    longest.push_back(
        *std::ranges::max_element(gaps.first(std::min(stretch, gaps.size())), {}, &StepsReport::Gap::length));
  }
  return longest;
}

StepsReport StepCounter::count(std::span<const TraceRecord> device, std::span<const TraceRecord> scheduler,
                               double frame_seconds) {
  StepsReport report;
  double computed = 0, other = 0;
  auto span = scheduler.begin();
  const auto note_idleness = [&](double until) {
    for (; span != scheduler.end() && span->begin < until; ++span)
      idle_since_ = idle_since_ || (span->name == &trace::kIdle && span->end > last_ended_);
  };
  for (const TraceRecord& step : device) {
    note_idleness(step.begin);
    if (last_ended_ > 0) {
      const double gap = std::max(step.begin - last_ended_, 0.0);
      if (!idle_since_) report.gaps.push_back({last_ended_, gap});
      other += idle_since_ ? std::min(gap, frame_seconds) : gap;
    }
    report.n++;
    report.rows += step.args[1];
    report.tokens += step.args[2];
    computed += step.end - step.begin;
    last_ended_ = step.end;
    idle_since_ = false;
  }
  note_idleness(std::numeric_limits<double>::infinity());
  report.busy = computed > 0 ? computed / (computed + other) : 0;
  return report;
}

}  // namespace gapless
