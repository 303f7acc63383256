#include "device/op_profile.h"

#include <algorithm>

namespace gapless {

void OpProfile::add(const StepTag& tag, std::span<const OpSample> ops, const StepTimes& times) {
  std::lock_guard lock(mutex_);
  Kind& kind = kinds_[tag.kind];
  kind.totals.kind = tag.kind;
  kind.totals.steps++;
  kind.totals.rows += tag.rows;
  kind.totals.seconds += times.ended - times.started;
  if (last_end_ > 0) kind.totals.gaps += std::max(0.0, times.started - std::max(last_end_, times.submitted));
  last_end_ = times.ended;
  for (const OpSample& sample : ops) {
    OpTotals& op = kind.totals.ops[place_of(kind, sample.label)];
    op.calls++;
    op.seconds += sample.seconds;
    op.work += sample.work;
  }
}

// The same text at another address (one layer's weights and the next one's) is the same label.
size_t OpProfile::place_of(Kind& kind, const char* label) {
  const auto [it, is_new] = kind.by_address.try_emplace(label, 0);
  if (!is_new) return it->second;
  std::vector<OpTotals>& ops = kind.totals.ops;
  const auto same = std::ranges::find(ops, std::string_view(label), &OpTotals::label);
  it->second = size_t(same - ops.begin());
  if (same == ops.end()) ops.push_back({.label = label, .calls = 0, .seconds = 0, .work = {}});
  return it->second;
}

std::vector<StepTotals> OpProfile::totals() const {
  std::lock_guard lock(mutex_);
  std::vector<StepTotals> totals;
  for (const auto& [number, kind] : kinds_) totals.push_back(kind.totals);
  return totals;
}

void OpProfile::reset() {
  std::lock_guard lock(mutex_);
  kinds_.clear();
  last_end_ = 0;  // what was before is no gap of what comes
}

}  // namespace gapless
