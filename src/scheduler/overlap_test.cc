// The traps of the first overlap scheduler (the list is in lifecycle_test.cc) with two batches in flight.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/testing/stepped.h"

namespace gapless::testing {
namespace {

Request stops_at(Request r, const Harness& h, size_t index) {
  r.params.stop_token_ids = {h.expected(r).ids.at(index)};
  return r;
}

SchedulerConfig tight_config(int64_t pool) {
  SchedulerConfig config = small_config();
  config.page_size = 1;
  config.max_total_tokens = pool;
  config.schedule_conservativeness = 0.02;
  config.policy = SchedulePolicy::kFcfs;
  return config;
}

TEST(Overlap, T1_AtMostTwoLaunchesAreOutstanding) {
  Stepped s;
  for (RequestId id = 1; id <= 12; id++) s.send(make_request(id, prompt(6, int32_t(id)), 12));
  s.settle();
  while (!s.peer.in_flight().empty()) {
    EXPECT_LE(s.h.worker.outstanding(), kMaxOutstanding);
    s.turn();
  }
  EXPECT_EQ(s.h.worker.max_outstanding(), kMaxOutstanding);
  s.finish_all();
}

// Chunks of a long prompt, one after the other, while a row waits to decode: nothing overwrites what it will
// read.
TEST(Overlap, T4_ManyPrefillBatchesWhileARowWaits) {
  for (int32_t running = 2; running <= 4; running++) {
    SchedulerConfig config = small_config();
    config.mixed_chunk = false;
    config.max_consecutive_prefill = 100;
    config.max_running_requests = running;
    config.chunked_prefill_size = 4;
    Stepped s(config);
    s.send(make_request(1, prompt(4, 1), 20));
    s.settle();
    s.send(make_request(2, prompt(80, 2), 10));
    s.finish_all();
    int32_t in_a_row = 0, most = 0;
    for (const FakeWorker::Step& step : s.h.worker.steps()) {
      in_a_row = step.mode == ForwardMode::kExtend ? in_a_row + 1 : 0;
      most = std::max(most, in_a_row);
    }
    EXPECT_GE(most, 20);
  }
}

TEST(Overlap, T5_PlaceholdersStayInTheBatch) {
  Stepped s;
  s.send(make_request(1, prompt(8), 10));
  s.settle();
  s.turns(2);
  const auto frozen = s.youngest().freeze(1000);
  EXPECT_TRUE(std::ranges::any_of(frozen->input_ids, is_placeholder));
  const Req& req = s.peer.req(1);
  EXPECT_TRUE(std::ranges::none_of(req.ids, is_placeholder));
  EXPECT_GT(req.kv_launched, req.len());
  s.finish_all();
}

TEST(Overlap, T8_WhoIsAbortedBeforeItBeginsIsNeverAdmitted) {
  Stepped s;
  s.send(make_request(1, prompt(8, 1), 10));
  s.settle();
  const uint32_t admissions = s.peer.memory().admissions;
  s.send(make_request(2, prompt(8, 2), 10));
  s.h.abort(2);
  s.settle();
  EXPECT_EQ(s.h.got(2).finish->reason, FinishReason::kAbort);
  EXPECT_FALSE(s.peer.knows(2));
  s.finish_all();
  EXPECT_EQ(s.peer.memory().admissions, admissions);
}

TEST(Overlap, T9_TheTokenInFlightOfARetractedRequestIsKeptAndHeWaitsForIt) {
  Stepped s(tight_config(40));
  s.send(make_request(1, prompt(4, 1), 24));
  s.send(make_request(2, prompt(4, 2), 24));
  s.settle();
  while (s.h.scheduler->stats().retractions == 0) s.turn();
  Req& req = s.peer.req(2);
  ASSERT_EQ(req.state(), ReqState::kWaiting);
  ASSERT_EQ(req.in_flight, 1);
  const int32_t before = req.output_len();
  s.settle();
  EXPECT_EQ(req.state(), ReqState::kWaiting);
  s.complete();
  EXPECT_EQ(req.output_len(), before + 1);
  EXPECT_EQ(req.in_flight, 0);
  EXPECT_EQ(s.met(Met::kLateToken), 1);
  s.finish_all();
}

TEST(Overlap, T10_RetractionFromTheFirstLaunchOn) {
  for (const int32_t chunks : {1, 2, 3}) {
    SchedulerConfig config = small_config();
    Stepped s(config);
    Request r = make_request(1, prompt(chunks * 16, 1), 5);
    r.prompt_logprob_begin = 0;
    r.params.top_logprobs = 0;
    for (int32_t i = 0; i < chunks; i++) {  // the batch in flight is the i-th chunk, launched alone
      r.id = RequestId(i) + 1;
      s.send(r);
      s.h.step_host();
      for (int32_t done = 0; done < i; done++) s.complete();  // and the next is launched
      ASSERT_EQ(s.peer.in_flight().size(), 1u);
      Req& req = s.peer.req(r.id);
      ASSERT_EQ(req.kv_launched, (i + 1) * 16);
      s.peer.retract(req);
      EXPECT_EQ(s.h.scheduler->check_memory(), "");
      s.complete();
      EXPECT_EQ(req.output_len(), i + 1 == chunks);
      s.finish_all();
    }
  }
}

TEST(Overlap, T11_WhatTwoLaunchedBatchesNameGoesBackWithTheSecond) {
  Stepped s;
  s.send(make_request(1, prompt(20), 20));
  s.settle();
  s.turns(3);
  const int32_t used = s.peer.memory().rows.used_slots();
  const int64_t handles = s.peer.memory().tree.handles();
  s.h.abort(1);
  s.h.step_host();
  EXPECT_EQ(s.h.got(1).finish->reason, FinishReason::kAbort);
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(s.peer.memory().rows.used_slots(), used);
    EXPECT_EQ(s.peer.memory().tree.handles(), handles);
    EXPECT_GT(s.leased(), 0);
    EXPECT_EQ(s.peer.memory().tree.evict(1000), 0);
    s.complete();
  }
  EXPECT_EQ(s.peer.memory().rows.used_slots(), 0);
  EXPECT_EQ(s.peer.memory().tree.handles(), 0);
  EXPECT_EQ(s.leased(), 0);
  s.finish_all();
}

// The device sees that a row ended by its token and does not compute it; what it holds goes back with it.
TEST(Overlap, T11_ARowThatEndedByATokenIsDroppedAndHoldsItsMemoryUntilThen) {
  Stepped s;
  s.send(stops_at(make_request(1, prompt(10), 20), s.h, 2));
  s.settle();
  while (!s.h.has(1) || !s.h.got(1).finish) s.complete(), s.h.step_host();
  EXPECT_GT(s.leased(), 0);
  s.finish_all();
  EXPECT_EQ(s.h.worker.steps().back().dropped_rows, 1);
  EXPECT_EQ(s.met(Met::kWastedByStopString) + s.met(Met::kWastedByAbort), 0);
  EXPECT_EQ(s.h.scheduler->stats().wasted_rows, 0);
}

TEST(Overlap, AStopStringCostsOneRow) {
  Stepped s;
  Request r = make_request(1, prompt(10), 20);
  r.stop = {s.h.expected(r).visible.substr(3, 3)};
  s.send(r);
  s.finish_all();
  EXPECT_EQ(s.h.got(1).finish->reason, FinishReason::kStop);
  EXPECT_EQ(s.h.scheduler->stats().wasted_rows, 1);
}

TEST(Overlap, T13_APageEntersTheTreeWhenItHasBeenComputed) {
  Stepped s;
  s.send(make_request(1, prompt(12, 1), 10));
  s.h.step_host();
  EXPECT_EQ(s.peer.memory().tree.total_pages(), 0);
  s.send(make_request(2, prompt(12, 1), 10));  // wants the pages that are being written
  s.settle();
  EXPECT_EQ(s.peer.memory().tree.total_pages(), 0);
  EXPECT_EQ(s.peer.waiting(), std::vector<RequestId>{2});
  s.complete();
  EXPECT_EQ(s.peer.memory().tree.total_pages(), 3);
  s.settle();
  EXPECT_TRUE(s.in_youngest(2));
  s.finish_all();
  EXPECT_EQ(s.h.got(2).cached_tokens, 8);
}

TEST(Overlap, T14_FlushDrainsFirst) {
  Stepped s;
  s.send(make_request(1, prompt(40, 1), 6));
  s.settle();
  s.turn();
  int64_t dropped = -1;
  s.h.flush([&](int64_t tokens) { dropped = tokens; });
  s.send(make_request(2, prompt(40, 1), 4));
  s.settle();
  while (s.peer.knows(1)) {
    EXPECT_EQ(dropped, -1) << "something still runs";
    EXPECT_EQ(s.peer.waiting(), std::vector<RequestId>{2});
    s.turn();
  }
  s.finish_all();
  EXPECT_EQ(dropped, 44);
  EXPECT_EQ(s.h.got(2).cached_tokens, 0);
}

TEST(Overlap, T14_TheLoopIsSwitchedOnADrainedPipelineAndNobodyNotices) {
  Stepped s;
  for (RequestId id = 1; id <= 4; id++) s.send(make_request(id, prompt(6, int32_t(id)), 30));
  s.settle();
  s.turns(3);
  EventLoop to = EventLoop::kOverlap;
  for (int i = 0; i < 6; i++) {
    bool done = false;
    to = to == EventLoop::kNormal ? EventLoop::kOverlap : EventLoop::kNormal;
    s.h.switch_loop(to, [&] {
      EXPECT_TRUE(s.peer.in_flight().empty());
      done = true;
    });
    const uint64_t youngest = s.peer.in_flight().back().id;
    for (int steps = 0; !done; steps++) {
      ASSERT_LT(steps, 10) << "the pipeline does not drain";
      for (const InFlight& launched : s.peer.in_flight()) EXPECT_LE(launched.id, youngest);
      s.h.step();
    }
    for (int steps = 0; steps < 4 || s.peer.in_flight().empty(); steps++) s.h.step();
  }
  EXPECT_EQ(s.peer.running().size(), 4u);
  s.finish_all();
  EXPECT_EQ(s.h.scheduler->stats().retractions, 0);
}

TEST(Overlap, T21_MemoryIsLookedAtOneStepEarlySoThatTheDeviceNeverWaitsForIt) {
  for (const int32_t page : {1, 4, 16}) {
    SchedulerConfig config = tight_config(160);
    config.page_size = page;
    Stepped s(config);
    for (RequestId id = 1; id <= 8; id++) s.send(make_request(id, prompt(4, int32_t(id)), 40));
    s.finish_all();
    EXPECT_GT(s.h.scheduler->stats().retractions, 0);
    EXPECT_EQ(s.h.scheduler->stats().memory_stalls, 0);
  }
}

// The pages of one who has just ended come back in time for the next step: nobody is sent back for them.
TEST(Overlap, T21_MemoryThatIsOnItsWayBackCounts) {
  Stepped s(tight_config(72));
  for (RequestId id = 1; id <= 3; id++) s.send(make_request(id, prompt(4, int32_t(id)), 40));
  s.settle();
  while (s.peer.memory().available_pages() > 3) s.turn();
  ASSERT_EQ(s.peer.memory().available_pages(), 3);
  ASSERT_EQ(s.peer.running().size(), 3u);
  s.h.abort(3);
  s.settle();
  s.turn();
  EXPECT_EQ(s.peer.running().size(), 2u);
  EXPECT_EQ(s.h.scheduler->stats().retractions, 0);
  s.finish_all();
}

// The normal loop does not look ahead, so the first steps after a switch may not fit.
struct Stalled : Stepped {
  explicit Stalled(RequestId n) : Stepped(tight_config(72)) {
    for (RequestId id = 1; id <= n; id++) send(make_request(id, prompt(4, int32_t(id)), 40));
    h.switch_loop(EventLoop::kNormal);
    while (peer.memory().available_pages() >= 2 * int32_t(n) || !peer.in_flight().empty()) h.step();
    h.switch_loop(EventLoop::kOverlap);
    h.step_host();
    h.step_host();
    EXPECT_EQ(peer.running().size(), n);
    EXPECT_EQ(peer.in_flight().size(), 1u);
    EXPECT_EQ(peer.memory().available_pages(), 0);
  }
};

TEST(Overlap, AStepThatDoesNotFitWaitsForTheResultInFlightAndThenSendsBack) {
  Stalled s(3);
  s.settle();
  EXPECT_EQ(s.h.scheduler->stats().memory_stalls, 1);
  EXPECT_EQ(s.peer.in_flight().size(), 1u);
  EXPECT_EQ(s.h.scheduler->stats().retractions, 0);
  s.turn();
  EXPECT_GT(s.h.scheduler->stats().retractions, 0);
  s.finish_all();
}

TEST(Overlap, AStallSendsNobodyBackWhenTheResultGivesBackEnough) {
  Stalled s(3);
  s.h.abort(3);
  s.settle();
  EXPECT_EQ(s.h.scheduler->stats().memory_stalls, 1);
  EXPECT_EQ(s.peer.in_flight().size(), 1u);
  s.turn();
  EXPECT_EQ(s.peer.in_flight().size(), 2u);
  EXPECT_EQ(s.h.scheduler->stats().retractions, 0);
  s.finish_all();
}

// StepWatch counts the turns.
TEST(Overlap, T23_NewcomersInEveryStepStarveNobody) {
  for (const bool mixed : {true, false}) {
    SchedulerConfig config = small_config();
    config.mixed_chunk = mixed;
    config.max_total_tokens = 4096;
    Stepped s(config);
    s.send(make_request(1, prompt(6, 1), 60));
    s.settle();
    for (RequestId id = 2; !s.h.has(1) || !s.h.got(1).finish; id++) {
      s.send(make_request(id, prompt(6, int32_t(id)), 1));
      s.settle();
      s.turn();
    }
    const std::vector<int64_t>& steps = s.h.got(1).steps;
    for (size_t i = 1; i < steps.size(); i++) EXPECT_LE(steps[i] - steps[i - 1], mixed ? 1 : 2);
    s.finish_all();
  }
}

TEST(Overlap, T28_ClosingTheInboxWithTwoBatchesInFlight) {
  Stepped s;
  s.send(make_request(1, prompt(20), 10));
  s.settle();
  s.send(make_request(2, prompt(20, 2), 10));
  s.h.close();
  while (s.h.step() != LoopWait::kStopped) {
  }
  s.h.expect_answer(s.requests[0]);
  s.h.expect_answer(s.requests[1]);
  s.h.expect_nothing_left();
}

TEST(Overlap, T29_AbortWhateverItIsDoing) {
  Stepped s;
  s.send(make_request(1, prompt(8, 1), 30));  // decodes in both batches
  s.send(make_request(2, prompt(8, 2), 5));   // its last token is in flight
  s.settle();
  s.turns(2);
  s.send(make_request(3, prompt(90, 3), 8));  // half done, a part in each
  s.settle();
  s.turn();
  s.send(make_request(4, prompt(8, 4), 8));  // waits
  s.settle();
  ASSERT_TRUE(s.peer.req(2).launched_to_length());
  ASSERT_EQ(s.peer.chunked_req(), &s.peer.req(3));
  ASSERT_EQ(s.peer.req(3).in_flight, 2);
  ASSERT_EQ(s.peer.waiting(), std::vector<RequestId>{4});
  for (RequestId id : {1, 2, 3, 4, 4, 3, 77}) s.h.abort(id);
  s.h.step_host();
  for (RequestId id : {1, 2, 3, 4}) EXPECT_EQ(s.h.got(id).finish->reason, FinishReason::kAbort) << id;
  s.complete();
  s.complete();
  for (RequestId id : {1, 2, 3, 4}) EXPECT_FALSE(s.peer.knows(id)) << id;
  EXPECT_EQ(s.h.step_host(), LoopWait::kRequests);
  s.finish_all();
}

TEST(Overlap, T29_AbortOfARetractedRequestWhoseTokenIsInFlight) {
  Stepped s(tight_config(40));
  s.send(make_request(1, prompt(4, 1), 24));
  s.send(make_request(2, prompt(4, 2), 24));
  s.settle();
  while (s.h.scheduler->stats().retractions == 0) s.turn();
  ASSERT_EQ(s.peer.req(2).in_flight, 1);
  const size_t had = s.h.got(2).ids.size();
  s.h.abort(2);
  s.h.step_host();
  EXPECT_EQ(s.h.got(2).finish->reason, FinishReason::kAbort);
  s.complete();
  EXPECT_EQ(s.h.got(2).ids.size(), had) << "what comes late is dropped";
  s.finish_all();
}

TEST(Overlap, T31_NothingIsLaunchedForThoseWhoHaveEnded) {
  Stepped s;
  s.send(make_request(1, prompt(8), 30));
  s.settle();
  s.turns(2);
  const int64_t before = s.h.worker.n_steps();
  s.h.abort(1);
  s.finish_all();
  EXPECT_EQ(s.h.worker.n_steps(), before + 2);
}

TEST(Overlap, AFailedStepTakesDownItsRowsAndThoseBehindAndNobodyElse) {
  Stepped s;
  s.send(make_request(1, prompt(8, 1), 20));
  s.settle();
  s.turns(2);
  s.h.worker.run_one();  // a good one
  s.h.worker.fail_next(Status::internal("injected"));
  s.h.worker.run_one();                       // 1 fails, and so does what is behind it
  s.send(make_request(2, prompt(8, 1), 20));  // the same prompt: what was computed before is good
  s.finish_all();
  EXPECT_EQ(s.h.got(1).finish->reason, FinishReason::kError);
  EXPECT_EQ(s.h.got(2).ids.size(), 20u);
  EXPECT_EQ(s.h.got(2).cached_tokens, 4);
  EXPECT_EQ(s.met(Met::kFailedStep), 1);
}

}  // namespace
}  // namespace gapless::testing
