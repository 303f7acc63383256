// Reported failures of other servers, as tests: the A-... ids are those of the project's catalogue of user
// reports.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>

#include "scheduler/testing/harness.h"
#include "scheduler/testing/peer.h"
#include "scheduler/validate.h"

namespace gapless::testing {
namespace {

TEST(Scheduler, A_KV_1_NothingLeaksHoweverRequestsEnd) {
  for (int32_t page : {1, 16}) {
    SchedulerConfig config = small_config();
    config.page_size = page;
    config.max_running_requests = 64;
    config.max_total_tokens = 512;
    config.schedule_conservativeness = 0.05;
    Harness h(config);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 256; id++) {
      requests.push_back(
          make_request(id, prompt(10 + int32_t(id * 7) % 60, int32_t(id) % 5), 1 + int32_t(id) % 40));
      h.send(requests.back());
    }
    for (int i = 0; i < 60; i++) {
      h.step();
      if (i % 2) h.abort(RequestId(i * 4 + 1));
    }
    h.run_until_idle();
    EXPECT_GT(h.scheduler->stats().retractions, 0);
    for (const Request& r : requests) {
      if (h.got(r.id).finish->reason != FinishReason::kAbort) h.expect_answer(r);
    }
    h.expect_nothing_left();
  }
}

TEST(Scheduler, A_KV_1_AServerHealsALeakAndLivesOn) {
  SchedulerConfig config = small_config();
  // Not a Harness: its checks are there to fail on exactly this.
  struct Sink : TokenSink {
    int finished = 0;
    void on_tokens(std::vector<TokenDelta> deltas) override {
      for (TokenDelta& d : deltas) finished += d.finish.has_value();
    }
  } sink;
  FakeWorker worker(config);
  Queue<SchedulerMessage> inbox;
  MetricsRegistry metrics;
  Tracer tracer(64);
  Scheduler scheduler(config, {worker, worker, sink, inbox, small_vocabulary(config.vocab_size), metrics,
                               tracer, [&](int32_t page) { worker.poison(page); }});
  SchedulerTestPeer peer(scheduler);
  static auto* const lost_pages = new std::deque<KvLease>;  // still reachable, never returned
  static auto* const lost_slots = new std::deque<ReqSlot>;
  lost_slots->push_back(peer.memory().rows.allocate());
  lost_pages->emplace_back(peer.memory().allocator);
  ASSERT_TRUE(lost_slots->back() && peer.memory().allocator.extend(lost_pages->back(), 5));
  EXPECT_NE(scheduler.check_memory(), "");
  EXPECT_EQ(scheduler.step(), LoopWait::kRequests);
  EXPECT_EQ(scheduler.stats().kv_healed, 6);
  EXPECT_EQ(scheduler.check_memory(), "");
  EXPECT_EQ(peer.memory().allocator.free_pages(), config.max_total_pages());
  inbox.try_push(std::make_unique<Request>(make_request(1, prompt(100), 20)));
  inbox.close();
  scheduler.run(EventLoop::kNormal);
  EXPECT_EQ(sink.finished, 1);
  EXPECT_EQ(scheduler.stats().kv_healed, 6);
}

TEST(Scheduler, A_KV_2_ARequestThatNeedsExactlyThePoolRuns) {
  SchedulerConfig config = small_config();
  config.context_length = 64;
  config.max_total_tokens = 64;
  config.page_size = 16;
  Harness h(config);
  // prompt + max_tokens fill the context; the last token's KV is never written.
  const std::vector<Request> requests = {make_request(1, prompt(10), 20), make_request(2, prompt(10, 1), 54),
                                         make_request(3, prompt(10, 2), 52),
                                         make_request(4, prompt(63, 3), 1)};
  for (const Request& r : requests) h.send(r);
  h.run_until_idle();
  for (const Request& r : requests) h.expect_answer(r);
  h.expect_nothing_left();
}

TEST(Scheduler, A_KV_2_WhatCanNeverFitIsRefusedAtOnceWithBothNumbers) {
  SchedulerConfig config = small_config();
  config.context_length = 128;
  config.max_total_tokens = 64;
  config.page_size = 16;
  Harness h(config);
  h.send(make_request(1, prompt(60), 6));  // 65 positions: five pages of 16
  h.send(make_request(2, prompt(100), 29));
  h.send(make_request(3, prompt(60), 5));
  h.step();
  const Finish& pool = *h.got(1).finish;
  EXPECT_EQ(pool.reason, FinishReason::kError);
  EXPECT_EQ(pool.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.status.error_code(), "context_length_exceeded");
  EXPECT_EQ(
      pool.status.message(),
      "prompt 60 + max_tokens 6 need 80 tokens of KV cache, the pool has 64 (--max-total-tokens, --kv-mem)");
  EXPECT_EQ(h.got(2).finish->status.message(),
            "prompt 100 + max_tokens 29 = 129 tokens > context length 128");
  EXPECT_EQ(h.got(2).finish->status.param(), "max_tokens");
  EXPECT_EQ(max_output_tokens(config, 60), 5);
  h.run_until_idle();
  EXPECT_EQ(h.got(3).ids.size(), 5u);
}

TEST(Scheduler, A_KV_3_AFullPoolRetractsTheNewestAndNobodyElseNotices) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 128;
  config.schedule_conservativeness = 0.1;  // optimistic, so that the pool really fills
  Harness h(config);
  SchedulerTestPeer peer(*h.scheduler);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 4; id++) {
    requests.push_back(make_request(id, prompt(8, int32_t(id)), 56));
    requests.back().params.max_tokens = 56;
    h.send(requests.back());
  }
  // Who is sent back first?
  while (h.scheduler->stats().retractions == 0) {
    ASSERT_LT(h.steps, 1000);
    h.step();
  }
  EXPECT_EQ(peer.waiting().front(), requests[peer.running().size()].id);
  h.run_until_idle();
  for (const Request& r : requests) h.expect_answer(r);
  // The oldest has a token in every step from its first to its last.
  const Received& oldest = h.got(1);
  EXPECT_EQ(oldest.steps.back() - oldest.steps.front(), int64_t(oldest.ids.size()) - 1);
  h.expect_nothing_left();
}

// Without mixed batches: on a turn of the decoding ones all of them are sent back for memory, while an older
// prompt is half done. It goes on; this once ended the process.
TEST(Scheduler, A_KV_3_AHalfDonePromptGoesOnWhenAllThatDecodeAreSentBack) {
  SchedulerConfig config = small_config();
  config.mixed_chunk = false;
  config.chunked_prefill_size = 4;
  config.max_total_tokens = 76;
  config.schedule_conservativeness = 0.1;
  config.policy = SchedulePolicy::kLof;  // so that the younger one starts first
  Harness h(config);
  const Request older = make_request(1, prompt(64, 1), 1), younger = make_request(2, prompt(4, 2), 60);
  h.send(older);
  h.send(younger);
  while (h.scheduler->stats().retractions == 0) {
    ASSERT_LT(h.steps, 200);
    h.step();
  }
  EXPECT_FALSE(h.has(1)) << "the older prompt was to be half done";
  h.run_until_idle();
  h.expect_answer(older);
  h.expect_answer(younger);
  h.expect_nothing_left();
}

TEST(Scheduler, A_MC_2_FlagsThatDoNotFitAreClippedOrRefusedWithASentence) {
  SchedulerConfig config = small_config();
  config.chunked_prefill_size = 4096;
  config.max_prefill_tokens = 2048;
  config.max_total_tokens = 103;
  std::vector<std::string> notes;
  const SchedulerConfig fixed = *check_scheduler_config(config, notes);
  EXPECT_EQ(fixed.chunked_prefill_size, 2048);
  EXPECT_EQ(fixed.max_total_tokens, 100);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_NE(notes[1].find("--chunked-prefill-size 4096 lowered to 2048"), std::string::npos) << notes[1];
  config.chunked_prefill_size = 0;
  EXPECT_NE(check_scheduler_config(config, notes).status().message().find("--chunked-prefill-size is 0"),
            std::string::npos);
  // Chunking off: the first long prompt is longer than any budget and runs whole.
  SchedulerConfig whole = small_config();
  whole.chunked_prefill_size = -1;
  whole.max_prefill_tokens = 10;
  Harness h(whole);
  const Request r = make_request(1, prompt(100), 3);
  h.send(r);
  h.send(make_request(2, prompt(4, 2), 3));
  h.run_until_idle();
  h.expect_answer(r);
  EXPECT_EQ(h.worker.steps()[0].prefill_tokens, 100);
  EXPECT_EQ(h.worker.steps()[0].rows, 1);
}

// The worst gap between two tokens of a stream, and the first token of a short newcomer, counted in steps.
TEST(Scheduler, A_FA_1_ALongPrefillNeitherFreezesStreamsNorStarvesNewcomers) {
  for (const bool mixed : {true, false}) {
    for (const int32_t consecutive : {1, 3}) {
      SchedulerConfig config = small_config();
      config.mixed_chunk = mixed;
      config.max_consecutive_prefill = consecutive;
      config.context_length = 1024;
      config.max_total_tokens = 4096;
      Harness h(config);
      for (RequestId id = 1; id <= 4; id++) h.send(make_request(id, prompt(6, int32_t(id)), 100));
      for (int i = 0; i < 10; i++) h.step();
      h.send(make_request(5, prompt(400, 5), 4));  // 25 chunks of 16
      h.send(make_request(6, prompt(4, 6), 4));
      const int64_t arrival = int64_t(h.worker.steps().size());
      h.run_until_idle();
      for (RequestId id = 1; id <= 4; id++) {
        const auto& steps = h.got(id).steps;
        for (size_t i = 1; i < steps.size(); i++)
          EXPECT_LE(steps[i] - steps[i - 1], mixed ? 1 : consecutive + 1);
      }
      // Four decode rows share each chunk of 16 when mixed; else decode steps come between.
      const int64_t chunks = mixed ? (400 + 11) / 12 + 2 : 26;
      EXPECT_LE(h.got(6).steps.front() - arrival,
                mixed ? chunks + 1 : chunks * (consecutive + 1) / consecutive + 3);
    }
  }
}

TEST(Scheduler, A_QF_1_BeyondTheQueueLimitEveryoneIsAnsweredAtOnce) {
  SchedulerConfig config = small_config();
  config.max_queued_requests = 96;
  Harness h(config);
  for (RequestId id = 1; id <= 500; id++) h.send(make_request(id, prompt(4, int32_t(id)), 3));
  h.step();
  int refused = 0;
  for (RequestId id = 1; id <= 500; id++) {
    if (!h.has(id) || !h.got(id).finish) continue;
    if (h.got(id).finish->status.code() == StatusCode::kResourceExhausted) refused++;
  }
  EXPECT_EQ(refused, 500 - 96 - config.max_running_requests);
  h.run_until_idle();
  for (RequestId id = 1; id <= 500; id++) ASSERT_TRUE(h.has(id) && h.got(id).finish) << id;
  h.expect_nothing_left();
}

TEST(Scheduler, A_USE_2_ChoicesCountTheirPromptOnceAndNotEachOthersCache) {
  Harness h(small_config());
  Request r = make_request(1, prompt(30), 6);
  r.n = 4;
  h.send(r);
  h.run_until_idle();
  for (int32_t choice = 0; choice < 4; choice++) {
    h.expect_answer(r, choice);
    EXPECT_EQ(h.got(1, choice).cached_tokens, 0);
    EXPECT_EQ(h.got(1, choice).prompt_tokens, 30);
  }
  EXPECT_NE(h.got(1, 0).ids, h.got(1, 1).ids);
  const SchedulerStats stats = h.scheduler->stats();
  EXPECT_EQ(stats.prompt_tokens, 30);
  EXPECT_EQ(stats.generation_tokens, 24);
  EXPECT_EQ(stats.cached_tokens, 0);
  EXPECT_LE(h.worker.prefill_tokens(), 30 + 3 * 5);  // though computed once
}

TEST(Scheduler, A_LP_3_LogprobsSurviveRetraction) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 16;
  config.max_total_tokens = 128;
  config.schedule_conservativeness = 0.1;
  Harness h(config);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 16; id++) {
    Request& r = requests.emplace_back(make_request(id, prompt(10, int32_t(id)), 30));
    r.params.top_logprobs = 3;
    r.prompt_logprob_begin = id % 2 ? 0 : -1;
    h.send(r);
  }
  h.run_until_idle();
  EXPECT_GT(h.scheduler->stats().retractions, 0);
  for (const Request& r : requests) {
    const Answer a = h.expected(r);
    EXPECT_EQ(h.got(r.id).logprobs, a.logprobs);
    ASSERT_EQ(h.got(r.id).prompt_logprobs.size(), a.prompt_logprobs.size());
    for (size_t i = 0; i < a.prompt_logprobs.size(); i++) {
      EXPECT_EQ(h.got(r.id).prompt_logprobs[i].logprob, a.prompt_logprobs[i]);
    }
  }
}

}  // namespace
}  // namespace gapless::testing
