// Reported failures of other servers' overlap schedulers, as tests in both loops: the A-OVL ids are those of
// the project's catalogue of user reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/testing/idle.h"
#include "scheduler/testing/stepped.h"

namespace gapless::testing {
namespace {

class KnownFailures : public ::testing::TestWithParam<EventLoop> {
 protected:
  void start(SchedulerConfig config, bool held = true) {
    h = std::make_unique<Harness>(std::move(config), GetParam());
    h->worker.hold(held);
  }
  void send(Request request) {
    requests.push_back(request);
    h->send(std::move(request));
  }
  void expect_all() {
    h->run_until_idle();
    for (const Request& r : requests) {
      for (int32_t choice = 0; choice < r.n; choice++) h->expect_answer(r, choice);
    }
    h->expect_nothing_left();
  }
  SchedulerStats stats() const { return h->scheduler->stats(); }
  bool overlap() const { return GetParam() == EventLoop::kOverlap; }

  std::unique_ptr<Harness> h;
  std::vector<Request> requests;
};

SchedulerConfig roomy() {
  SchedulerConfig config = small_config();
  config.context_length = 2048;
  config.max_total_tokens = 16384;
  return config;
}

// A short request, then twenty chunks of another before it decodes; then a flood of one-token requests.
TEST_P(KnownFailures, A_OVL_1_NoTokenIsLostBetweenItsStepAndTheNext) {
  for (const bool mixed : {false, true}) {
    SchedulerConfig config = roomy();
    config.max_running_requests = 4;
    config.chunked_prefill_size = 64;
    config.mixed_chunk = mixed;
    config.max_consecutive_prefill = 50;
    start(config);
    requests.clear();
    send(make_request(1, prompt(8, 1), 30));
    h->step();
    send(make_request(2, prompt(20 * 64, 2), 30));
    for (RequestId id = 3; id <= 64; id++)
      send(make_request(id, prompt(9, int32_t(id)), 1 + int32_t(id) % 2));
    expect_all();
  }
}

// Penalties, bias and min_tokens of every kind, one request ending in each step, and a pool that is too
// small.
TEST_P(KnownFailures, A_OVL_2_PenaltiesSeeEveryTokenOnce) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 16;
  config.max_total_tokens = 192;
  config.schedule_conservativeness = 0.05;
  start(config);
  for (RequestId id = 1; id <= 32; id++) {
    Request r = make_request(id, prompt(4 + int32_t(id) % 5, int32_t(id)), 12 + int32_t(id));
    if (id % 2) r.params.repetition_penalty = 1.3f;
    if (id % 3) r.params.frequency_penalty = 2.0f;
    if (id % 5 == 0) r.params.presence_penalty = 1.0f;
    if (id % 4 == 0) r.params.logit_bias = {{5, 3.0f}, {9, -3.0f}};
    r.params.min_tokens = int32_t(id) % 7;
    r.params.ignore_eos = id % 4 != 0;
    send(std::move(r));
  }
  expect_all();
  EXPECT_GT(stats().retractions, 0);
  if (overlap()) {
    EXPECT_GT(h->watch->met(Met::kLateToken), 0);
  }
}

// The device ahead of the host or behind it: never more than two results are outstanding.
TEST_P(KnownFailures, A_OVL_3_TheResultQueueStaysShort) {
  for (const bool held : {true, false}) {
    start(small_config(), held);
    requests.clear();
    for (RequestId id = 1; id <= 32; id++) send(make_request(id, prompt(6, int32_t(id)), 9));
    expect_all();
    EXPECT_EQ(h->worker.max_outstanding(), overlap() ? 2u : 1u);
  }
}

TEST_P(KnownFailures, A_OVL_4_RetractionWithABatchInFlight) {
  for (const int32_t page : {1, 16}) {
    SchedulerConfig config = small_config();
    config.page_size = page;
    config.context_length = 2048;
    config.max_running_requests = 12;
    config.max_total_tokens = 2048;
    config.chunked_prefill_size = 256;
    config.schedule_conservativeness = 0.05;
    start(config);
    requests.clear();
    for (RequestId id = 1; id <= 12; id++) send(make_request(id, prompt(10, int32_t(id)), 400));
    h->send(make_request(13, prompt(1700, 13), 350));
    expect_all();
    EXPECT_GT(stats().retractions, 0);
    if (overlap()) {
      EXPECT_GT(h->watch->met(Met::kRetractedInFlight), 0);
    }
    // What can never fit is told so, and nobody else notices.
    EXPECT_EQ(h->got(13).finish->status.code(), StatusCode::kInvalidArgument);
  }
}

TEST_P(KnownFailures, A_OVL_5_LongPromptsAmongThoseWhoDecodeThenPressure) {
  SchedulerConfig config = small_config();
  config.context_length = 400;
  config.max_total_tokens = 800;
  config.schedule_conservativeness = 0.02;
  start(config);
  for (RequestId id = 1; id <= 6; id++) send(make_request(id, prompt(5, int32_t(id)), 150));
  for (int i = 0; i < 40; i++) h->step();
  for (RequestId id = 7; id <= 12; id++) {
    Request r = make_request(id, prompt(200, int32_t(id)), 20);
    r.params.frequency_penalty = 1;
    send(std::move(r));
  }
  expect_all();
  EXPECT_GT(stats().retractions, 0);
}

// Requests that end in every step, in every way, and as many that wait for their places.
TEST_P(KnownFailures, A_OVL_6_APlaceIsReusedOnlyWhenNobodyReadsIt) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 4;
  config.max_total_tokens = 128;
  for (const bool mixed : {true, false}) {
    config.mixed_chunk = mixed;
    start(config);
    requests.clear();
    for (RequestId id = 1; id <= 200; id++) {
      Request r = make_request(id, prompt(3 + int32_t(id * 5) % 12, int32_t(id) % 9), 1 + int32_t(id) % 6);
      const Answer a = h->expected(r);
      if (id % 3 == 0) r.params.stop_token_ids = {a.ids[a.ids.size() / 2]};
      if (id % 5 == 0) r.stop = {a.visible.substr(a.visible.size() / 2, 1)};
      send(std::move(r));
    }
    expect_all();
    if (overlap()) {
      EXPECT_GT(h->watch->met(Met::kDropped), 0);
      EXPECT_GT(h->watch->met(Met::kWastedByStopString), 0);
    }
  }
}

TEST_P(KnownFailures, A_OVL_7_AbortBetweenTheLastChunkAndItsResult) {
  start(small_config());
  SchedulerTestPeer peer(*h->scheduler);
  for (RequestId id = 1; id <= 3; id++) h->send(make_request(id, prompt(40, int32_t(id)), 10));
  const auto launched = [&] { return peer.knows(3) && peer.req(3).kv_launched >= 40; };
  while (!launched()) {
    const LoopWait wait = h->step_host();
    if (wait != LoopWait::kNothing && !launched()) h->worker.run_one();
  }
  ASSERT_FALSE(h->has(3));
  // In the normal loop an abort is taken in between two batches; here it comes in the middle of one.
  peer.abort(3);
  EXPECT_GT(peer.memory().allocator.count(PageState::kLeased), 0);
  EXPECT_EQ(h->scheduler->check_memory(), "");
  h->worker.run_one();  // the normal loop's next step waits for it
  h->run_until_idle();
  EXPECT_EQ(peer.memory().allocator.count(PageState::kLeased), 0);
  EXPECT_EQ(h->got(3).finish->reason, FinishReason::kAbort);
  EXPECT_TRUE(h->got(3).ids.empty());
  h->expect_nothing_left();
}

TEST_P(KnownFailures, A_OVL_8_AbortOfTheChunkedRequestGivesItsKvBack) {
  start(small_config());
  SchedulerTestPeer peer(*h->scheduler);
  for (RequestId round = 0; round < 50; round++) {
    for (RequestId i = 1; i <= 12; i++)
      h->send(make_request(round * 12 + i, prompt(60, int32_t(i + round)), 3));
    while (!peer.chunked_req()) h->step();
    const RequestId chunked = peer.chunked_req()->request().id;
    h->abort(chunked);
    h->run_until_idle();
    EXPECT_EQ(h->got(chunked).finish->reason, FinishReason::kAbort);
    h->expect_nothing_left();
  }
}

TEST_P(KnownFailures, A_OVL_9_MaxTokensOneNeedsNoDecodeStep) {
  SchedulerConfig config = small_config();
  config.max_total_tokens = 4096;
  for (const bool mixed : {true, false}) {
    config.mixed_chunk = mixed;
    start(config);
    requests.clear();
    for (RequestId id = 1; id <= 100; id++)
      send(make_request(id, prompt(5 + int32_t(id) % 7, int32_t(id)), 1));
    expect_all();
    EXPECT_EQ(h->worker.count_steps(ForwardMode::kExtend), int32_t(h->worker.steps().size()));
    for (const FakeWorker::Step& step : h->worker.steps()) EXPECT_EQ(step.decode_rows, 0);
    EXPECT_EQ(stats().wasted_rows, 0);
    EXPECT_EQ(h->watch->met(Met::kDropped), 0);
  }
}

TEST_P(KnownFailures, A_OVL_12_AnIdleLoopSleepsAndWakes) {
  start(small_config(), false);
  NamedThread loop("loop", [&] { h->scheduler->run(GetParam()); });
  RequestId id = 0;
  const auto send_one = [&] {
    id++;
    h->send(make_request(id, prompt(8, int32_t(id)), 8));
  };
  const auto answer_one = [&] {
    const int64_t tokens = stats().generation_tokens;
    send_one();
    while (stats().generation_tokens < tokens + 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  EXPECT_LT(cpu_share_at_rest("loop", 0.02, answer_one), 0.02);
  // The best of many, for the machine may be busy; a loop that polls would miss it every time.
  double wake_up = 1;
  for (int attempt = 0; attempt < 300 && wake_up > 0.001; attempt++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int64_t tokens = stats().generation_tokens;
    const double sent = steady_seconds();
    send_one();
    while (stats().generation_tokens == tokens) std::this_thread::yield();
    wake_up = std::min(wake_up, steady_seconds() - sent);
  }
  EXPECT_LE(wake_up, 0.001);
  send_one();
  h->close();
  loop.join();
  EXPECT_EQ(h->got(id).ids.size(), 8u);  // what was in the inbox when it closed is answered
}

// The loop waits for a result as quietly as for a request.
TEST_P(KnownFailures, A_OVL_12_WaitingForTheDeviceCostsNoCpu) {
  start(small_config());
  NamedThread loop("loop", [&] { h->scheduler->run(GetParam()); });
  h->send(make_request(1, prompt(8), 8));
  EXPECT_LT(cpu_share_at_rest("loop", 0.1, [] {}), 0.1);
  std::thread device([&] { h->worker.serve([] {}); });
  h->inbox.close();
  loop.join();
  h->worker.stop();
  device.join();
  EXPECT_EQ(h->got(1).ids.size(), 8u);
}

// The first request after the loop was idle, again and again.
TEST_P(KnownFailures, A_OVL_13_RequestsWithGapsBetweenThem) {
  start(small_config());
  for (RequestId id = 1; id <= 150; id++) {
    send(make_request(id, prompt(1 + int32_t(id * 11) % 50, int32_t(id) % 6), 1 + int32_t(id) % 9));
    for (RequestId step = 0; step < id * 7 % 12; step++) h->step();
    if (id % 3 == 0) h->run_until_idle();
  }
  expect_all();
}

INSTANTIATE_TEST_SUITE_P(Loops, KnownFailures, ::testing::Values(EventLoop::kNormal, EventLoop::kOverlap),
                         [](const auto& info) { return event_loop_name(info.param); });

}  // namespace
}  // namespace gapless::testing
