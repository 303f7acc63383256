// A batch that is queued behind the one being computed is taken back for those who have just arrived.
#include <gtest/gtest.h>

#include "scheduler/testing/stepped.h"

namespace gapless::testing {
namespace {

// Request 1 decodes, two of its batches are in flight.
struct Decoding : Stepped {
  explicit Decoding(SchedulerConfig config = small_config(), int32_t max_tokens = 40) : Stepped(config) {
    send(make_request(1, prompt(8, 1), max_tokens));
    settle();
    turns(3);
  }
  int64_t recalls() const { return h.scheduler->stats().recalls; }
};

TEST(Recall, ANewcomerJoinsTheBatchQueuedBehind) {
  Decoding s;
  const uint64_t first = s.peer.in_flight().front().id, old = s.peer.in_flight().back().id;
  const int64_t arrival = s.h.worker.n_steps();
  s.send(make_request(2, prompt(8, 2), 5));
  s.settle();
  EXPECT_EQ(s.recalls(), 1);
  ASSERT_EQ(s.peer.in_flight().size(), 2u);
  EXPECT_EQ(s.peer.in_flight().front().id, first);
  EXPECT_EQ(s.peer.in_flight().back().id, old + 1);
  EXPECT_EQ(s.youngest().rows().size(), 2u);
  EXPECT_EQ(s.youngest().mode(), ForwardMode::kMixed);
  EXPECT_EQ(s.h.worker.outstanding(), 2u);
  s.turns(2);
  // Its first token comes with the step after the one that was being computed, as in the normal loop.
  ASSERT_EQ(s.h.got(2).ids.size(), 1u);
  EXPECT_EQ(s.h.got(2).steps.front() - arrival, 2);
  s.finish_all();
}

TEST(Recall, NothingIsTakenBackWhenNobodyHasArrived) {
  Decoding s;
  s.turns(10);
  s.h.abort(77);
  s.settle();
  EXPECT_EQ(s.recalls(), 0);
  s.finish_all();
}

TEST(Recall, WhatTheDeviceHasTakenStays) {
  Decoding s;
  const uint64_t youngest = s.peer.in_flight().back().id;
  s.h.worker.run_one();
  s.h.worker.run_one();
  s.send(make_request(2, prompt(8, 2), 5));
  s.h.step_host();
  EXPECT_EQ(s.recalls(), 0);
  EXPECT_EQ(s.peer.in_flight().back().id, youngest);
  EXPECT_FALSE(s.in_youngest(2));
  s.settle();
  EXPECT_TRUE(s.in_youngest(2)) << "it joins the next";
  s.finish_all();
}

TEST(Recall, NotWhenThePromptOfAnotherUsesTheStepUp) {
  Decoding s;
  s.send(make_request(2, prompt(60, 2), 5));  // chunks of 16
  s.settle();
  ASSERT_EQ(s.recalls(), 1);
  const uint64_t youngest = s.peer.in_flight().back().id;
  s.send(make_request(3, prompt(4, 3), 5));
  s.settle();
  EXPECT_EQ(s.recalls(), 1);
  EXPECT_EQ(s.peer.in_flight().back().id, youngest);
  s.finish_all();
}

TEST(Recall, NotWhenEveryPlaceIsTaken) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 1;
  Decoding s(config);
  s.send(make_request(2, prompt(8, 2), 5));
  s.settle();
  EXPECT_EQ(s.recalls(), 0);
  s.finish_all();
}

TEST(Recall, WithoutMixedStepsOnlyAPrefillIsJoined) {
  SchedulerConfig config = small_config();
  config.mixed_chunk = false;
  Decoding s(config);
  ASSERT_EQ(s.youngest().mode(), ForwardMode::kDecode);
  s.send(make_request(2, prompt(4, 2), 20));
  s.settle();
  EXPECT_EQ(s.recalls(), 0);
  s.turn();
  ASSERT_EQ(s.youngest().mode(), ForwardMode::kExtend);
  s.send(make_request(3, prompt(4, 3), 5));
  s.settle();
  EXPECT_EQ(s.recalls(), 1);
  EXPECT_TRUE(s.in_youngest(2) && s.in_youngest(3));
  EXPECT_EQ(s.youngest().mode(), ForwardMode::kExtend);
  s.finish_all();
}

TEST(Recall, NotIntoABatchForWhichSomebodyWasSentBack) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 48;
  config.schedule_conservativeness = 0.02;
  config.policy = SchedulePolicy::kFcfs;
  Decoding s(config, 30);
  s.send(make_request(2, prompt(4, 2), 24));
  s.settle();
  for (int i = 0; s.h.scheduler->stats().retractions == 0; i++) {
    ASSERT_LT(i, 100);
    s.turn();
  }
  const int64_t before = s.recalls();
  const uint64_t youngest = s.peer.in_flight().back().id;
  ASSERT_EQ(s.peer.waiting(), std::vector<RequestId>{2});
  s.send(make_request(3, prompt(1, 3), 1));
  s.settle();
  EXPECT_EQ(s.recalls(), before);
  EXPECT_EQ(s.peer.in_flight().back().id, youngest);
  // Nor later, while who was sent back has not returned.
  while (s.peer.req(2).state() == ReqState::kWaiting && s.peer.knows(1)) {
    s.send(make_request(100 + RequestId(s.h.steps), prompt(1, 3), 1));
    s.settle();
    EXPECT_EQ(s.recalls(), before);
    s.turn();
  }
  s.finish_all();
}

TEST(Recall, NotWhenOneThatWaitsLongerDidNotFit) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 64;
  config.policy = SchedulePolicy::kFcfs;
  Decoding s(config);
  s.send(make_request(2, prompt(30, 2), 20));
  s.settle();
  s.turns(2);
  ASSERT_EQ(s.peer.waiting(), std::vector<RequestId>{2});
  const int64_t before = s.recalls();
  s.send(make_request(3, prompt(1, 3), 1));
  s.settle();
  EXPECT_EQ(s.recalls(), before);
  s.finish_all();
}

TEST(Recall, ANewcomerDoesNotGetThePageThatADecodingRowNeedsNext) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 12;  // three pages, all of them request 1's in the end
  config.schedule_conservativeness = 0.02;
  Stepped s(config);
  s.send(make_request(1, prompt(4, 1), 9));
  s.settle();
  while (s.peer.req(1).kv_launched < 8) s.turn();
  ASSERT_EQ(s.peer.memory().available_pages(), 1);
  s.send(make_request(2, prompt(3, 2), 0));
  s.settle();
  EXPECT_FALSE(s.in_youngest(2));
  s.finish_all();
  EXPECT_EQ(s.h.scheduler->stats().memory_stalls + s.h.scheduler->stats().retractions, 0);
}

TEST(Recall, NotWhileAFlushOrASwitchIsWanted) {
  for (const bool flush : {true, false}) {
    Decoding s;
    flush ? s.h.flush([](int64_t) {}) : s.h.switch_loop(EventLoop::kNormal);
    s.send(make_request(2, prompt(8, 2), 5));
    s.settle();
    EXPECT_EQ(s.recalls(), 0);
    EXPECT_FALSE(s.in_youngest(2));
    s.finish_all();
  }
}

TEST(Recall, TwiceInARowAndEverySlotIsInitialisedAgain) {
  Decoding s;
  const uint64_t old = s.peer.in_flight().back().id;
  s.send(make_request(2, prompt(5, 2), 5));
  s.settle();
  s.send(make_request(3, prompt(5, 3), 5));
  s.settle();
  EXPECT_EQ(s.recalls(), 2);
  EXPECT_EQ(s.h.worker.recalled_again(), 1);
  EXPECT_EQ(s.peer.in_flight().back().id, old + 2);
  EXPECT_EQ(s.youngest().freeze(1000)->slot_inits.size(), 2u);
  EXPECT_EQ(s.youngest().rows().size(), 3u);
  EXPECT_EQ(s.h.worker.outstanding(), 2u);
  s.finish_all();
}

TEST(Recall, APageOfARecalledBatchIsStillBeingWritten) {
  Decoding s;
  s.send(make_request(2, prompt(12, 2), 5));
  s.settle();
  ASSERT_EQ(s.recalls(), 1);
  // The same prompt: it waits for the pages of request 2, and a recall does not admit it.
  s.send(make_request(3, prompt(12, 2), 5));
  s.settle();
  EXPECT_FALSE(s.in_youngest(3));
  const int64_t before = s.recalls();
  s.h.abort(77);
  s.settle();
  EXPECT_EQ(s.recalls(), before) << "it has not arrived again";
  s.turns(3);
  s.finish_all();
  EXPECT_EQ(s.h.got(3).cached_tokens, 8);
}

TEST(Recall, AnAbortAndANewcomerAtOnce) {
  for (const bool newcomer_first : {true, false}) {
    Decoding s;
    const int32_t used = s.peer.memory().rows.used_slots();
    if (!newcomer_first) s.h.abort(1);
    s.send(make_request(2, prompt(8, 2), 5));
    if (newcomer_first) s.h.abort(1);
    s.settle();
    EXPECT_EQ(s.met(Met::kAbortRecalled), 1);
    // T31: every row but the newcomer's belongs to one that has ended; they go with the batch.
    EXPECT_TRUE(s.in_youngest(1) && s.in_youngest(2));
    EXPECT_EQ(s.h.got(1).finish->reason, FinishReason::kAbort);
    EXPECT_EQ(s.peer.memory().rows.used_slots(), used + 1);
    s.complete();
    EXPECT_GT(s.leased(), 0) << "the batch that replaced the recalled one names its pages";
    s.complete();
    EXPECT_EQ(s.leased(), 0);
    s.finish_all();
  }
}

TEST(Recall, AbortOfWhoJoinedByIt) {
  Decoding s;
  s.send(make_request(2, prompt(8, 2), 5));
  s.settle();
  s.h.abort(2);
  s.send(make_request(3, prompt(4, 3), 5));
  s.settle();
  EXPECT_EQ(s.recalls(), 2);
  EXPECT_TRUE(s.in_youngest(2) && s.in_youngest(3));
  EXPECT_GT(s.leased(), 0);
  s.turns(2);
  EXPECT_TRUE(s.h.got(2).ids.empty());
  EXPECT_FALSE(s.peer.knows(2));
  s.finish_all();
}

TEST(Recall, AFailedStepTakesDownTheRecalledRowsBehindItAndNotTheNewcomer) {
  Decoding s;
  s.h.worker.fail_next(Status::internal("injected"));
  s.send(make_request(2, prompt(8, 2), 5));
  s.settle();
  ASSERT_EQ(s.recalls(), 1);
  s.turns(2);
  EXPECT_EQ(s.h.got(1).finish->reason, FinishReason::kError);
  EXPECT_EQ(s.met(Met::kFailedDependant), 1);
  s.finish_all();
  EXPECT_EQ(s.h.got(2).ids.size(), 5u);
}

// T27: more decode rows than a step has prompt tokens.
TEST(Recall, T27_TheNewcomerGetsNoMoreOfTheStepThanItWouldHaveHad) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 16;
  config.max_total_tokens = 2048;
  for (const int32_t chunk : {1, 4, 15, 18}) {
    config.chunked_prefill_size = chunk;
    Stepped s(config);
    for (RequestId id = 1; id <= 15; id++) s.send(make_request(id, prompt(4, int32_t(id)), 100));
    s.settle();
    while (s.peer.running().size() < 15 || s.peer.chunked_req()) s.turn();
    s.turns(2);
    const int64_t before = s.h.scheduler->stats().recalls;
    s.send(make_request(16, prompt(40, 16), 5));
    s.settle();
    EXPECT_EQ(s.h.scheduler->stats().recalls, before + 1);
    EXPECT_EQ(s.youngest().n_prefill_tokens(), std::max(chunk - 15, (chunk + 3) / 4) / 4 * 4 > 0
                                                   ? std::max(chunk - 15, (chunk + 3) / 4) / 4 * 4
                                                   : std::max(chunk - 15, (chunk + 3) / 4));
    s.finish_all();
  }
}

}  // namespace
}  // namespace gapless::testing
