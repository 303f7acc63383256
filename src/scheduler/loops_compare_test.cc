// Where nothing but the order of host and device differs (no request ends before its length, memory and
// places for all, no prompts that share a prefix), both loops compute the same batches in the same steps. So
// a request's first token does not come a step later than in the normal loop (A-OVL-11).
#include <gtest/gtest.h>

#include <random>

#include "scheduler/testing/harness.h"

namespace gapless::testing {
namespace {

struct Arrival {
  int64_t during_step;  // of the device, from 1 on
  Request request;
};

struct Trace {
  std::vector<std::tuple<ForwardMode, int32_t, int32_t>> steps;  // mode, rows, prompt tokens
  std::vector<int64_t> first_token;                              // the step that computed it, of each request
  int64_t recalls = 0;
};

// Every request arrives while the device is in the middle of a step, or when nothing runs.
Trace run(const SchedulerConfig& config, EventLoop loop, const std::vector<Arrival>& arrivals) {
  Harness h(config, loop);
  h.worker.hold(true);
  size_t next = 0;
  for (;;) {
    const LoopWait wait = h.settle();
    const int64_t computing = h.worker.n_steps() + 1;
    const bool idle = wait == LoopWait::kRequests;
    if (idle && next == arrivals.size()) break;
    const int64_t now = idle ? std::max(computing, arrivals[next].during_step) : computing;
    for (; next < arrivals.size() && arrivals[next].during_step <= now; next++)
      h.send(arrivals[next].request);
    if (idle) continue;
    if (loop == EventLoop::kOverlap) h.settle();
    h.worker.run_one();
  }
  Trace trace;
  for (const FakeWorker::Step& step : h.worker.steps())
    trace.steps.emplace_back(step.mode, step.rows, step.prefill_tokens);
  for (const Arrival& a : arrivals) {
    h.expect_answer(a.request);
    trace.first_token.push_back(h.got(a.request.id).steps.front());
  }
  trace.recalls = h.scheduler->stats().recalls;
  return trace;
}

std::vector<Arrival> random_arrivals(std::mt19937_64& rng) {
  std::vector<Arrival> arrivals;
  int64_t at = 1;
  const uint64_t gap = 1 + rng() % 8, longest = 1 + rng() % 60;
  for (RequestId id = 1; id <= 12; id++) {
    std::vector<int32_t> ids(1 + rng() % longest);
    for (int32_t& token : ids) token = 2 + int32_t(rng() % 62);
    arrivals.push_back({at, make_request(id, std::move(ids), 1 + int32_t(rng() % 12))});
    at += int64_t(rng() % gap);
  }
  return arrivals;
}

TEST(LoopsCompare, A_OVL_11_MixedStepsAreTheSameInBothLoops) {
  int64_t recalls = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 rng(seed);
    SchedulerConfig config = small_config();
    config.max_running_requests = 16;
    config.max_total_tokens = 4096;
    config.page_size = 16;
    config.chunked_prefill_size = rng() % 4 == 0 ? -1 : 1 + int32_t(rng() % 40);
    config.max_prefill_tokens = 60 + int32_t(rng() % 60);
    config.policy = SchedulePolicy::kFcfs;
    config.radix_cache = false;
    const std::vector<Arrival> arrivals = random_arrivals(rng);
    const Trace normal = run(config, EventLoop::kNormal, arrivals);
    const Trace overlap = run(config, EventLoop::kOverlap, arrivals);
    EXPECT_EQ(normal.steps, overlap.steps);
    EXPECT_EQ(normal.first_token, overlap.first_token);
    recalls += overlap.recalls;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(recalls, 300);
}

}  // namespace
}  // namespace gapless::testing
