#include "apps/op_timer.h"

#include <algorithm>
#include <limits>

namespace gapless {

namespace {

constexpr int kRounds = 5;
constexpr double kRoundSeconds = 0.02;
constexpr int32_t kMostOps = 20'000;  // of a step

struct Nothing {
  int32_t chunks;
};
int32_t nothing_chunks(const Nothing& p) {
  return p.chunks;
}
void nothing_run(const Nothing&, int32_t, OpContext&) {}

}  // namespace

double OpTimer::best_seconds(const std::function<void(OpList&, int64_t)>& push) {
  double best = std::numeric_limits<double>::infinity();
  int64_t at = 0;
  int32_t n = 1;
  for (int round = 0; round < kRounds;) {
    auto ops = stream_->new_ops();
    for (int32_t i = 0; i < n; i++) push(*ops, at++);
    const auto event = stream_->submit(std::move(ops));
    const Status status = event->wait();
    CHECK(status.is_ok(), "{}", status.message());
    const StepTimes times = event->times();
    const double seconds = times.ended - times.started;
    if (seconds < kRoundSeconds && n < kMostOps) {  // too short to judge
      n = std::clamp(int32_t(n * kRoundSeconds / std::max(seconds, 1e-6) * 1.2), n + 1, kMostOps);
      continue;
    }
    best = std::min(best, seconds / n);
    round++;
  }
  return best;
}

double OpTimer::empty_op() {
  const Nothing nothing{stream_->workers()};
  return best_seconds(
      [&](OpList& ops, int64_t) { ops.push<nothing_chunks, nothing_run>("nothing", nothing); });
}

}  // namespace gapless
