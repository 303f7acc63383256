// The order of the queue, the budgets of a prefill step, the token ratio, and what is refused at the door.
#include "scheduler/schedule_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "scheduler/testing/harness.h"
#include "scheduler/testing/peer.h"
#include "scheduler/validate.h"

namespace gapless::testing {
namespace {

std::vector<int32_t> with_tail(int32_t prefix_len, int32_t flavour, int32_t tail) {
  std::vector<int32_t> ids = prompt(prefix_len, flavour);
  ids.insert(ids.end(), {2 + tail, 3 + tail, 4 + tail});
  return ids;
}

// One request at a time, so that the order of first tokens is the order of the queue.
class PolicyTest : public ::testing::Test {
 protected:
  std::vector<RequestId> order(SchedulePolicy policy, std::vector<Request> requests, uint64_t seed = 0) {
    SchedulerConfig config = small_config();
    config.policy = policy;
    config.random_seed = seed;
    config.max_running_requests = 1;
    config.max_total_tokens = 4096;
    Harness h(config);
    // What is cached: two prefixes, one with many readers.
    h.send(make_request(1001, prompt(20, 1), 1));
    h.send(make_request(1002, prompt(40, 2), 1));
    h.run_until_idle();
    for (Request& r : requests) h.send(std::move(r));
    h.run_until_idle();
    std::vector<std::pair<int64_t, RequestId>> first;
    for (const auto& [who, r] : h.received) {
      if (who.first < 1000) first.push_back({r.steps.front(), who.first});
    }
    std::ranges::sort(first);
    std::vector<RequestId> ids;
    for (const auto& [step, id] : first) ids.push_back(id);
    return ids;
  }
  std::vector<Request> mixed() {
    return {make_request(1, prompt(10, 5), 2), make_request(2, with_tail(20, 1, 1), 5),
            make_request(3, with_tail(40, 2, 1), 3), make_request(4, with_tail(20, 1, 9), 4),
            make_request(5, with_tail(20, 1, 20), 1)};
  }
};

TEST_F(PolicyTest, FcfsKeepsTheOrderOfArrival) {
  EXPECT_EQ(order(SchedulePolicy::kFcfs, mixed()), (std::vector<RequestId>{1, 2, 3, 4, 5}));
}

TEST_F(PolicyTest, LpmTakesTheLongestCachedPrefixFirst) {
  EXPECT_EQ(order(SchedulePolicy::kLpm, mixed()), (std::vector<RequestId>{3, 2, 4, 5, 1}));
}

TEST_F(PolicyTest, LpmIsFcfsOnALongQueue) {
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 200; id++) {
    requests.push_back(
        make_request(id, id % 2 ? prompt(6, int32_t(id)) : with_tail(40, 2, int32_t(id) % 50), 1));
  }
  const std::vector<RequestId> got = order(SchedulePolicy::kLpm, std::move(requests));
  const size_t fcfs = 200 - kLpmQueueLimit;
  for (size_t i = 0; i < fcfs; i++) EXPECT_EQ(got[i], i + 1);
  for (size_t i = fcfs; i < fcfs + kLpmQueueLimit / 2; i++)
    EXPECT_EQ(got[i] % 2, 0u) << "the cached ones come first now";
}

TEST_F(PolicyTest, LofTakesTheLongestOutputFirst) {
  EXPECT_EQ(order(SchedulePolicy::kLof, mixed()), (std::vector<RequestId>{2, 4, 3, 1, 5}));
}

TEST_F(PolicyTest, DfsWeightTakesTheHeaviestBranchFirst) {
  EXPECT_EQ(order(SchedulePolicy::kDfsWeight, mixed()), (std::vector<RequestId>{2, 4, 5, 3, 1}));
}

TEST_F(PolicyTest, RandomDependsOnItsSeedAndNothingElse) {
  std::vector<Request> many;
  for (RequestId id = 1; id <= 30; id++) many.push_back(make_request(id, prompt(4, int32_t(id)), 1));
  const auto a = order(SchedulePolicy::kRandom, many, 1);
  EXPECT_EQ(order(SchedulePolicy::kRandom, many, 1), a);
  EXPECT_NE(order(SchedulePolicy::kRandom, many, 2), a);
  EXPECT_EQ(std::set<RequestId>(a.begin(), a.end()).size(), 30u);
}

TEST(NewTokenRatio, FollowsTheRulesOfTheFirstImplementation) {
  NewTokenRatio ratio(1.0);
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
  ratio.on_decode_step();
  EXPECT_NEAR(ratio.value(), 0.7 - (0.7 - 0.098) / 600, 1e-12);
  for (int i = 0; i < 1000; i++) ratio.on_decode_step();
  EXPECT_NEAR(ratio.value(), 0.098, 1e-12);
  ratio.on_retract(100, 1000, 4);
  EXPECT_DOUBLE_EQ(ratio.value(), 0.18);
  ratio.on_retract(1000, 1000, 4);
  EXPECT_DOUBLE_EQ(ratio.value(), 1.0);
  ratio.reset();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
  EXPECT_DOUBLE_EQ(NewTokenRatio(2.0).value(), 1.0);
}

TEST(PrefillBudget, AStepComputesAtMostTheChunk) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 4096;
  for (int32_t chunk : {1, 7, 16, 64}) {
    config.chunked_prefill_size = chunk;
    Harness h(config);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 6; id++) {
      requests.push_back(make_request(id, prompt(9 + int32_t(id) * 11, int32_t(id)), 6));
      h.send(requests.back());
    }
    h.run_until_idle();
    for (const auto& step : h.worker.steps()) EXPECT_LE(step.prefill_tokens, chunk);
    for (const Request& r : requests) EXPECT_EQ(h.got(r.id).ids, h.expected(r).ids);
  }
}

TEST(PrefillBudget, SeveralShortPromptsShareAStep) {
  SchedulerConfig config = small_config();
  config.chunked_prefill_size = 64;
  Harness h(config);
  for (RequestId id = 1; id <= 8; id++) h.send(make_request(id, prompt(8, int32_t(id)), 2));
  h.run_until_idle();
  EXPECT_EQ(h.worker.steps().front().rows, 8);
}

TEST(PrefillBudget, WholePromptsShareAStepUpToMaxPrefillTokens) {
  SchedulerConfig config = small_config();
  config.chunked_prefill_size = -1;
  config.max_prefill_tokens = 50;
  config.max_total_tokens = 4096;
  Harness h(config);
  for (RequestId id = 1; id <= 8; id++) h.send(make_request(id, prompt(20, int32_t(id)), 2));
  h.run_until_idle();
  for (const auto& step : h.worker.steps()) EXPECT_LE(step.prefill_tokens, 50);
  EXPECT_EQ(h.worker.steps().front().prefill_tokens, 40);
}

TEST(PrefillBudget, EstimatesKeepAdmissionBackBeforeThePoolIsFull) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 128;
  Harness h(config);
  SchedulerTestPeer peer(*h.scheduler);
  for (RequestId id = 1; id <= 4; id++) h.send(make_request(id, prompt(8, int32_t(id)), 100));
  for (int i = 0; i < 6; i++) h.step();
  // Four prompts are 32 of 128 tokens, but the first may use 107 and is expected to use 0.7 of that.
  EXPECT_EQ(peer.running(), std::vector<RequestId>{1});
  h.run_until_idle();
  EXPECT_EQ(h.scheduler->stats().retractions, 0);
}

TEST(PrefillBudget, ARetractedRequestStaysInFrontOfTheQueue) {
  Harness h(small_config());
  SchedulerTestPeer peer(*h.scheduler);
  h.worker.hold(true);
  for (RequestId id = 1; id <= 8; id++) h.send(make_request(id, prompt(2, int32_t(id)), 20));
  for (RequestId id = 9; id <= 12; id++) h.send(make_request(id, prompt(2, int32_t(id)), 20));
  h.step();
  h.step();
  EXPECT_EQ(peer.waiting(), (std::vector<RequestId>{9, 10, 11, 12}));
  for (RequestId id : {7, 8, 5}) peer.retract(peer.req(id));
  EXPECT_EQ(peer.waiting(), (std::vector<RequestId>{5, 7, 8, 9, 10, 11, 12}));
  h.run_until_idle();
  h.expect_nothing_left();
}

TEST(Validate, T32_EmptyOrWrongPromptsAreRefused) {
  const SchedulerConfig config = small_config();
  const auto refused = [&](Request r) {
    Status status = validate(config, r);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status;
  };
  EXPECT_EQ(refused(make_request(1, {}, 4)).param(), "prompt");
  EXPECT_EQ(refused(make_request(1, {5, 64}, 4)).message(), "token id 64 is outside the vocabulary, 0 to 63");
  EXPECT_EQ(refused(make_request(1, {5, -1}, 4)).param(), "prompt");
  EXPECT_EQ(refused(make_request(1, {5}, -1)).param(), "max_tokens");
  Request r = make_request(1, {5}, 4);
  r.n = 0;
  EXPECT_EQ(refused(r).param(), "n");
  r = make_request(1, {5}, 4);
  r.params.min_tokens = 5;
  EXPECT_EQ(refused(r).param(), "min_tokens");
  r = make_request(1, {5}, 4);
  r.stop = {"a", ""};
  EXPECT_EQ(refused(r).param(), "stop");
  r = make_request(1, {5}, 4);
  r.prompt_logprob_begin = 1;
  EXPECT_EQ(refused(r).param(), "logprobs");
  EXPECT_TRUE(validate(config, make_request(1, {5}, 4)).is_ok());
  EXPECT_TRUE(validate(config, make_request(1, prompt(127), 1)).is_ok());
  EXPECT_EQ(refused(make_request(1, prompt(128), 1)).param(), "prompt");
  EXPECT_EQ(refused(make_request(1, prompt(120), 9)).param(), "max_tokens");
}

TEST(Validate, ARefusedRequestIsAnsweredOncePerChoice) {
  Harness h(small_config());
  Request r = make_request(1, {}, 4);
  r.n = 3;
  h.send(r);
  h.run_until_idle();
  for (int32_t choice = 0; choice < 3; choice++)
    EXPECT_EQ(h.got(1, choice).finish->reason, FinishReason::kError);
}

TEST(Validate, PolicyNames) {
  EXPECT_EQ(*parse_schedule_policy("dfs-weight"), SchedulePolicy::kDfsWeight);
  EXPECT_EQ(parse_schedule_policy("best").status().message(),
            "unknown --schedule-policy 'best'; known: lpm, fcfs, lof, random, dfs-weight");
}

}  // namespace
}  // namespace gapless::testing
