// What the scheduler guarantees while batches are in flight, and where the traps of the first overlap
// scheduler (SGLang 0.4.0, by their number in the project's study of it) are asserted. Here and in the
// property test in both loops; overlap_test.cc and recall_test.cc have the cases with two batches in flight.
//
//   T1 T3    FakeWorker: a launched batch survives its bytes and is the same when it is computed; at most two
//            are outstanding; T1_AtMostTwoLaunchesAreOutstanding
//   T4       T4_ManyPrefillBatchesWhileARowWaits, A_OVL_1; there is no ring: placeholders are per slot
//   T5       T5_PlaceholdersStayInTheBatch, FakeWorker::write_row, CHECK in append_token
//   T6       T6_AResultIsPairedByItsBatchId here, StepWatch::check_row, CHECK in process_batch_result
//   T7       every page in one state after every step: Harness::step
//   T8 T32   T8_WhoIsAbortedBeforeItBeginsIsNeverAdmitted, T32_EmptyOrWrongPromptsAreRefused
//   T9 T10   of those names, here and with two batches in flight
//   T11      of that name; the pool's free lists are last in, first out
//   T12 T13  rows are never rewritten, pages enter the tree when computed: FakeWorker::apply, read_row,
//            T13_APageEntersTheTreeWhenItHasBeenComputed
//   T14      T14_FlushWaitsUntilNothingRuns, T14_FlushDrainsFirst, T14_TheLoopIsSwitchedOnADrainedPipeline...
//   T17      a ticket per launch: recall_test.cc, FakeWorker::Launch::collect
//   T20      CHECK in ScheduleBatch::add_decode
//   T21      of that name, CHECK in KvMemory::allocate
//   T22      Harness::on_tokens
//   T23      StepWatch::check_turn and check_idle, T23_NewcomersInEveryStepStarveNobody, A_FA_1
//   T24      of that name; T34 and the logical clock in radix_cache_test.cc
//   T25      FakeWorker::read_row checks each target, expect_answer each prompt logprob
//   T26      Harness::on_tokens, CHECK in on_admitted
//   T27      of that name, here and for a recalled batch
//   T28      T28_ClosingTheInbox..., threaded_test.cc
//   T29      of that name, check_aborts in the property test
//   T30      FakeWorker: the answer depends on the counts that slot_init restores; A_OVL_2
//   T31      T31_NothingIsLaunchedForThoseWhoHaveEnded, CHECK in ScheduleBatch::freeze
//   T33      a match is a lock (CacheHandle); radix_cache_test.cc
//   T34      radix_cache_test.cc
//   T2 T15 T16 T18 T19 concern device streams, masks and the forward thread: worker tests
#include <gtest/gtest.h>

#include "scheduler/testing/harness.h"
#include "scheduler/testing/peer.h"

namespace gapless::testing {
namespace {

class Lifecycle : public ::testing::Test {
 protected:
  explicit Lifecycle(SchedulerConfig config = small_config()) : h(config), peer(*h.scheduler) {
    h.worker.hold(true);
  }

  void send(Request request) {
    requests.push_back(request);
    h.send(std::move(request));
  }
  // Composes and launches one batch, and leaves it in flight.
  void launch() {
    ASSERT_EQ(h.scheduler->step(), LoopWait::kResult);
    ASSERT_EQ(h.scheduler->check_memory(), "");
  }
  void complete() {
    ASSERT_TRUE(h.worker.run_one());
    ASSERT_EQ(h.scheduler->step(), LoopWait::kNothing);
    ASSERT_EQ(h.scheduler->check_memory(), "");
  }
  void finish_all() {
    h.run_until_idle();
    for (const Request& r : requests) {
      const Received& got = h.got(r.id);
      ASSERT_TRUE(got.finish);
      if (got.finish->reason != FinishReason::kAbort) {
        EXPECT_EQ(got.ids, h.expected(r).ids) << r.id;
      }
    }
    h.expect_nothing_left();
  }
  int32_t leased() { return peer.memory().allocator.count(PageState::kLeased); }

  Harness h;
  SchedulerTestPeer peer;
  std::vector<Request> requests;
};

TEST_F(Lifecycle, T9_ALateTokenOfARetractedRequestIsKept) {
  send(make_request(1, prompt(10), 8));
  send(make_request(2, prompt(10, 1), 8));
  for (int i = 0; i < 3; i++) {
    launch();
    complete();
  }
  launch();
  Req& req = peer.req(2);
  const int32_t before = req.output_len();
  peer.retract(req);
  EXPECT_EQ(req.epoch, 0u);
  EXPECT_EQ(req.output_len(), before);
  EXPECT_EQ(h.scheduler->check_memory(), "");
  EXPECT_GT(leased(), 0);
  // Not readmitted while that result is out.
  EXPECT_EQ(peer.waiting(), std::vector<RequestId>{2});
  complete();
  EXPECT_EQ(req.output_len(), before + 1);
  EXPECT_EQ(leased(), 0);
  finish_all();
}

TEST_F(Lifecycle, T9_ALateTokenMayEndARetractedRequest) {
  send(make_request(1, prompt(10), 2));
  launch();
  complete();
  launch();
  peer.retract(peer.req(1));
  complete();
  EXPECT_EQ(h.got(1).finish->reason, FinishReason::kLength);
  EXPECT_TRUE(peer.waiting().empty());
  finish_all();
}

TEST_F(Lifecycle, T10_RetractBeforeTheFirstResult) {
  send(make_request(1, prompt(40), 5));
  launch();  // its first chunk
  peer.retract(peer.req(1));
  complete();
  EXPECT_EQ(peer.req(1).output_len(), 0);
  launch();
  complete();
  launch();
  complete();
  launch();  // its last chunk, which emits
  peer.retract(peer.req(1));
  complete();
  EXPECT_EQ(peer.req(1).output_len(), 1);
  finish_all();
}

TEST_F(Lifecycle, T11_WhatALaunchedBatchNamesIsNotReused) {
  send(make_request(1, prompt(20), 8));
  launch();
  complete();
  launch();
  Req& req = peer.req(1);
  const int32_t slot = req.held.slot.id(), used = peer.memory().rows.used_slots();
  const std::vector<int32_t> pages(req.held.tail.pages().begin(), req.held.tail.pages().end());
  const int64_t handles = peer.memory().tree.handles();
  peer.abort(1);
  EXPECT_EQ(h.scheduler->check_memory(), "");
  EXPECT_EQ(peer.memory().rows.used_slots(), used);  // slot and lock stay as well
  EXPECT_EQ(peer.memory().tree.handles(), handles);
  for (int32_t page : pages) EXPECT_NE(peer.memory().allocator.state(page), PageState::kFree);
  EXPECT_EQ(peer.memory().tree.evict(1000), 0);  // what the batch reads is locked
  complete();
  EXPECT_EQ(peer.memory().rows.used_slots(), 0);
  EXPECT_EQ(peer.memory().tree.handles(), 0);
  EXPECT_GT(slot, 0);
  finish_all();
}

TEST_F(Lifecycle, T29_AbortInEveryState) {
  send(make_request(1, prompt(8), 50));
  launch();
  complete();
  send(make_request(2, prompt(60, 2), 8));  // chunked
  send(make_request(3, prompt(8, 3), 8));   // waiting behind it
  launch();
  EXPECT_EQ(peer.req(1).state(), ReqState::kDecode);
  EXPECT_EQ(peer.req(2).state(), ReqState::kPrefill);
  EXPECT_EQ(peer.req(3).state(), ReqState::kWaiting);
  for (RequestId id : {1, 2, 3}) peer.abort(id);
  for (RequestId id : {1, 2, 3}) peer.abort(id);  // a second one finds nothing to do
  peer.abort(77);
  EXPECT_EQ(h.scheduler->check_memory(), "");
  complete();
  for (RequestId id : {1, 2, 3}) {
    EXPECT_EQ(h.got(id).finish->reason, FinishReason::kAbort);
    EXPECT_EQ(h.got(id).finish->status.code(), StatusCode::kCancelled);
    EXPECT_FALSE(peer.knows(id));
  }
  finish_all();
}

TEST_F(Lifecycle, T14_FlushWaitsUntilNothingRuns) {
  send(make_request(1, prompt(40), 4));
  launch();
  complete();
  int64_t dropped = -1;
  h.flush([&](int64_t tokens) { dropped = tokens; });
  send(make_request(2, prompt(40), 4));
  for (int i = 0; i < 3; i++) {
    launch();
    complete();
    EXPECT_EQ(dropped, -1) << "something still runs";
    EXPECT_EQ(peer.waiting(), std::vector<RequestId>{2}) << "nothing is admitted meanwhile";
  }
  finish_all();
  EXPECT_EQ(dropped, 40);
  EXPECT_EQ(h.got(2).cached_tokens, 0);
}

TEST_F(Lifecycle, AFailedStepTakesItsRowsDownAndOnlyThem) {
  send(make_request(1, prompt(8), 5));
  launch();
  complete();
  h.worker.fail_next(Status::internal("device lost a step"));
  launch();
  send(make_request(2, prompt(8), 5));
  complete();
  EXPECT_EQ(h.got(1).finish->reason, FinishReason::kError);
  EXPECT_EQ(h.got(1).finish->status.message(), "device lost a step");
  EXPECT_EQ(h.got(1).ids.size(), 1u);
  h.run_until_idle();
  EXPECT_EQ(h.got(2).ids, h.expected(requests[1]).ids);
  EXPECT_EQ(h.got(2).cached_tokens, 4);  // what had been computed before is still good
  h.expect_nothing_left();
}

TEST_F(Lifecycle, AFailedWriterStrandsNobodyWhoWaitsForItsPages) {
  send(make_request(1, prompt(14), 3));
  send(make_request(2, prompt(14), 3));
  h.worker.fail_next(Status::internal("no"));
  launch();
  EXPECT_EQ(peer.waiting(), std::vector<RequestId>{2});
  complete();
  EXPECT_EQ(h.got(1).finish->reason, FinishReason::kError);
  h.run_until_idle();
  EXPECT_EQ(h.got(2).ids, h.expected(requests[1]).ids);
}

TEST_F(Lifecycle, OneCallToTheSinkPerStep) {
  for (RequestId id = 1; id <= 4; id++) send(make_request(id, prompt(4, int32_t(id)), 6));
  launch();
  complete();
  const int64_t calls = h.calls_to_sink;
  launch();
  complete();
  EXPECT_EQ(h.calls_to_sink, calls + 1);
  finish_all();
}

TEST(LifecycleDeathTest, T6_AResultIsPairedByItsBatchId) {
  struct WrongId : ModelWorkerClient {
    explicit WrongId(const SchedulerConfig& c) : worker(c) {}
    PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override {
      ModelWorkerBatch other = *batch;
      other.id += 7;
      return worker.forward_batch_generation(Frozen<ModelWorkerBatch>(std::move(other)));
    }
    FakeWorker worker;
  };
  struct Sink : TokenSink {
    void on_tokens(std::vector<TokenDelta>) override {}
  };
  const auto run = [] {
    const SchedulerConfig config = small_config();
    WrongId worker(config);
    Sink sink;
    Queue<SchedulerMessage> inbox;
    MetricsRegistry metrics;
    Tracer tracer(64);
    Scheduler scheduler(config, {worker, worker, sink, inbox, small_vocabulary(64), metrics, tracer, {}});
    inbox.try_push(std::make_unique<Request>(make_request(1, prompt(4), 4)));
    scheduler.step();
    scheduler.step();
  };
  EXPECT_DEATH(run(), "8 vs 1");
}

TEST(LifecycleMemory, T21_MixedStepsCheckDecodeMemory) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 64;
  config.page_size = 4;
  config.schedule_conservativeness = 0.05;
  Harness h(config);
  std::vector<Request> requests;
  // A stream of newcomers takes every page that becomes free while others decode.
  for (RequestId id = 1; id <= 20; id++) {
    requests.push_back(make_request(id, prompt(8, int32_t(id)), 24));
    h.send(requests.back());
  }
  h.run_until_idle();
  EXPECT_GT(h.worker.count_steps(ForwardMode::kMixed), 0);
  EXPECT_GT(h.scheduler->stats().retractions, 0);
  for (const Request& r : requests) EXPECT_EQ(h.got(r.id).ids, h.expected(r).ids);
}

TEST(LifecycleMemory, T27_ChunksAreNeverEmpty) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 16;
  config.max_total_tokens = 2048;
  for (int32_t chunk : {1, 2, 4, 15}) {
    config.chunked_prefill_size = chunk;
    Harness h(config);
    for (RequestId id = 1; id <= 15; id++) h.send(make_request(id, prompt(4, int32_t(id)), 110));
    for (int i = 0; i < 2000 && !h.has(15); i++) h.step();
    const Request late = make_request(16, prompt(40, 16), 5);  // more decode rows than a chunk has tokens
    h.send(late);
    const size_t arrival = h.worker.steps().size();
    while (!h.has(16)) h.step();
    for (size_t i = arrival; i < h.worker.steps().size(); i++) {
      EXPECT_GT(h.worker.steps()[i].prefill_tokens, 0);
      EXPECT_LE(h.worker.steps()[i].prefill_tokens, chunk);
    }
    h.run_until_idle();
    EXPECT_EQ(h.got(16).ids, h.expected(late).ids);
  }
}

TEST(LifecycleMemory, T24_TheSameInputGivesTheSameSchedule) {
  for (const SchedulePolicy policy :
       {SchedulePolicy::kLpm, SchedulePolicy::kRandom, SchedulePolicy::kDfsWeight}) {
    SchedulerConfig config = small_config();
    config.policy = policy;
    config.random_seed = 5;
    std::vector<std::vector<int64_t>> runs(2);
    for (auto& run : runs) {
      Harness h(config);
      for (RequestId id = 1; id <= 40; id++)
        h.send(make_request(id, prompt(5 + int32_t(id) % 30, int32_t(id) % 4), 9));
      h.run_until_idle();
      for (const auto& [who, r] : h.received) run.insert(run.end(), r.steps.begin(), r.steps.end());
    }
    EXPECT_EQ(runs[0], runs[1]);
  }
}

TEST(LifecycleMemory, T28_ClosingTheInboxEndsTheLoop) {
  Harness h(small_config());
  const Request r = make_request(1, prompt(20), 20);
  h.send(r);
  h.step();
  h.send(make_request(2, prompt(20, 2), 20));
  h.close();
  h.scheduler->run(EventLoop::kNormal);
  EXPECT_EQ(h.got(1).ids, h.expected(r).ids);
  EXPECT_EQ(h.got(2).ids.size(), 20u);
  h.expect_nothing_left();
}

}  // namespace
}  // namespace gapless::testing
