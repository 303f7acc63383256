// Thousands of random workloads against the oracle, in both loops and with switches between them: whatever is
// admitted, cut, mixed, recalled, retracted, aborted, cached or lost with a failed step, every answer is the
// oracle's, the memory laws and those of StepWatch hold after every step, and nothing is left at the end. A
// failing seed is printed; GAPLESS_SEED runs it alone, GAPLESS_WORKLOADS sets how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include "scheduler/testing/harness.h"
#include "scheduler/testing/workload.h"

namespace gapless::testing {
namespace {

class WorkloadRun {
 public:
  explicit WorkloadRun(Workload workload)
      : w_(std::move(workload)), rng_(w_.driver_seed), h_(w_.config, w_.loop), loop_(w_.loop) {}

  void run() {
    h_.worker.hold(w_.held);
    for (;; now_++) {
      ASSERT_LT(now_, 20000) << "never ends";
      send_what_is_due();
      if (w_.failures > 0 && below(20) == 0) {
        h_.worker.fail_next(Status::internal("injected"));
        w_.failures--;
      }
      // The device may be ahead of the host by what is launched.
      for (int32_t n = w_.held && below(5) == 0 ? 1 + below(2) : 0; n > 0; n--) h_.worker.run_one();
      const LoopWait wait = h_.step_host();
      check_aborts();
      if (::testing::Test::HasFailure()) return;
      if (wait == LoopWait::kStopped) break;
      if (wait == LoopWait::kRequests) {
        next_ == w_.events.size() ? h_.close() : void(now_ = std::max(now_, w_.events[next_].at - 1));
      } else if (wait == LoopWait::kResult) {
        h_.worker.run_one();
      } else if (wait == LoopWait::kResultOrRequests && below(4) < w_.eagerness) {
        h_.worker.run_one();
      }
    }
    h_.expect_nothing_left();
    EXPECT_EQ(h_.worker.outstanding(), 0u);
    EXPECT_EQ(answered_, sent_) << "flushes and switches";
    for (const Request& request : w_.requests) {
      const bool aborted = std::ranges::count(aborted_, request.id) > 0;
      for (int32_t choice = 0; choice < request.n; choice++) {
        // Whether an error was due is for StepWatch.
        h_.expect_answer_or_cut(request, choice, aborted);
      }
    }
  }

  const StepWatch& watch() const { return *h_.watch; }
  const std::vector<FakeWorker::Step>& steps() const { return h_.worker.steps(); }

 private:
  int32_t below(int32_t n) { return int32_t(rng_() % uint64_t(n)); }

  void send_what_is_due() {
    for (; next_ < w_.events.size() && w_.events[next_].at <= now_; next_++) send(w_.events[next_]);
  }

  void send(const WorkloadEvent& event) {
    switch (event.kind) {
      case WorkloadEvent::Kind::kRequest:
        return h_.send(w_.requests[event.id - 1]);
      case WorkloadEvent::Kind::kAbort:
        aborted_.push_back(event.id);
        pending_aborts_.push_back(event.id);
        return h_.abort(event.id);
      case WorkloadEvent::Kind::kFlush:
        sent_++;
        return h_.flush([this](int64_t) { answered_++; });
      case WorkloadEvent::Kind::kSwitch:
        sent_++;
        loop_ = loop_ == EventLoop::kNormal ? EventLoop::kOverlap : EventLoop::kNormal;
        return h_.switch_loop(loop_, [this] { answered_++; });
    }
  }

  // Once an abort has been taken in, its request has had its last delta, whatever it was doing (T29).
  void check_aborts() {
    if (h_.inbox.size() > 0) return;
    for (RequestId id : std::exchange(pending_aborts_, {})) {
      for (int32_t choice = 0; choice < w_.requests[id - 1].n; choice++) {
        EXPECT_TRUE(h_.has(id, choice) && h_.got(id, choice).finish)
            << "request " << id << " was aborted and goes on";
      }
    }
  }

  Workload w_;
  std::mt19937_64 rng_;
  Harness h_;
  EventLoop loop_;
  int64_t now_ = 0;
  size_t next_ = 0;
  std::vector<RequestId> aborted_, pending_aborts_;
  int32_t sent_ = 0, answered_ = 0;  // flushes and switches
};

int64_t env(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

// The workloads are worth something: how often 4,000 of them meet, at least, what they are meant to meet.
struct AtLeast {
  Met what;
  int64_t times;
};
constexpr std::array<AtLeast, kMetKinds> kAtLeast = {{
    {Met::kRecall, 400},
    {Met::kRecalledAgain, 30},
    {Met::kRecallAdmits, 300},
    {Met::kMemoryStall, 12},
    {Met::kRetraction, 600},
    {Met::kRetractedInFlight, 300},
    {Met::kPromptLogprobsRetractedInFlight, 6},
    {Met::kLateToken, 300},
    {Met::kLateEnd, 2},
    {Met::kAbortInFlight, 1500},
    {Met::kAbortRecalled, 10},
    {Met::kAbortRetractedInFlight, 1},
    {Met::kFlushInFlight, 300},
    {Met::kSwitchInFlight, 1000},
    {Met::kWastedByStopString, 800},
    {Met::kWastedByAbort, 1500},
    {Met::kDropped, 1000},
    {Met::kFailedStep, 400},
    {Met::kFailedDependant, 300},
    {Met::kCachedPrefix, 4000},
}};

TEST(SchedulerProperty, RandomWorkloadsGiveTheOraclesAnswers) {
  const int64_t only = env("GAPLESS_SEED", 0), n = env("GAPLESS_WORKLOADS", 4000);
  std::array<int64_t, kMetKinds> met{};
  for (int64_t seed = only ? only : 1; seed <= (only ? only : n); seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    WorkloadRun run(make_workload(uint64_t(seed)));
    run.run();
    ASSERT_FALSE(HasFailure()) << "GAPLESS_SEED=" << seed;
    for (size_t i = 0; i < kMetKinds; i++) met[i] += run.watch().all_met()[i];
  }
  if (only) return;
  for (const AtLeast& expected : kAtLeast) {
    EXPECT_GE(met[size_t(expected.what)], expected.times * n / 4000) << met_name(expected.what);
  }
}

// T24: nothing depends on the clock or on addresses.
TEST(SchedulerProperty, T24_TheSameWorkloadGivesTheSameSchedule) {
  for (uint64_t seed = 1; seed <= 64; seed++) {
    std::vector<std::tuple<uint64_t, int32_t, int32_t>> runs[2];
    for (auto& steps : runs) {
      WorkloadRun run(make_workload(seed));
      run.run();
      for (const FakeWorker::Step& step : run.steps())
        steps.emplace_back(step.batch_id, step.rows, step.prefill_tokens);
    }
    EXPECT_EQ(runs[0], runs[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gapless::testing
