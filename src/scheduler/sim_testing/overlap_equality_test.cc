// The promise of the overlap loop, on the simulated accelerator: whatever the order in which scheduler,
// forward worker and device get on, every answer is the oracle's, token for token and logprob bit for bit, in
// both loops and across switches between them; the memory laws hold after every step, and everything is given
// back.
//
// Seeds are 1, 2, ...; a failing one is printed and runs alone with GAPLESS_SEED. One of these workloads
// costs as much as several of the scheduler's property test, so of GAPLESS_WORKLOADS a quarter are stepped,
// in each loop, and a tenth run on threads.
#include <gtest/gtest.h>

#include <cstdlib>

#include "scheduler/sim_testing/rig.h"

namespace gapless::sim_testing {
namespace {

uint64_t env(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

struct Seeds {
  uint64_t first, last;
};
Seeds seeds(uint64_t share, uint64_t least) {
  if (const uint64_t only = env("GAPLESS_SEED", 0)) return {only, only};
  return {1, std::max(env("GAPLESS_WORKLOADS", 12'000) / share, least)};
}

// What the workloads must have met to be worth something, per 1,000 of them.
void expect_coverage(const Coverage& met, uint64_t workloads) {
  std::cout << workloads << " workloads: " << met.text() << std::endl;
  if (workloads < 1000) return;
  const auto n = int64_t(workloads) / 1000;
  EXPECT_GT(met.recalls, 20 * n);
  EXPECT_GT(met.retractions, 100 * n);
  EXPECT_GT(met.memory_stalls, 0);
  EXPECT_GT(met.cached_tokens, 1000 * n);
  EXPECT_GT(met.dropped_rows, 100 * n);
  EXPECT_GT(met.wasted_rows, 100 * n);
  EXPECT_GT(met.failed_steps, 100 * n);
  EXPECT_GT(met.switches, 100 * n);
  EXPECT_GT(met.flushes, 100 * n);
  EXPECT_GT(met.aborted, 100 * n);
}

TEST(OverlapEquality, SteppedInRandomOrder) {
  const Seeds all = seeds(4, 50);
  Coverage met;
  for (uint64_t seed = all.first; seed <= all.last; seed++) {
    Workload workload = make_workload(seed);
    for (EventLoop loop : {EventLoop::kOverlap, EventLoop::kNormal}) {
      workload.loop = loop;
      Rig rig(workload, Rig::Drive::kStepped);
      ASSERT_EQ(rig.run_stepped(), "") << "GAPLESS_SEED=" << seed << ": " << workload.description();
      met += rig.coverage();
    }
  }
  expect_coverage(met, all.last - all.first + 1);
}

TEST(OverlapEquality, OnThreadsWithDelays) {
  const Seeds all = seeds(10, 100);
  Coverage met;
  for (uint64_t seed = all.first; seed <= all.last; seed++) {
    const Workload workload = make_workload(seed);
    Rig rig(workload, Rig::Drive::kThreaded);
    ASSERT_EQ(rig.run_threaded(), "") << "GAPLESS_SEED=" << seed << ": " << workload.description();
    met += rig.coverage();
  }
  std::cout << all.last - all.first + 1 << " workloads on threads: " << met.text() << std::endl;
}

}  // namespace
}  // namespace gapless::sim_testing
