#include "scheduler/testing/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>

namespace gapless::testing {

SchedulerConfig small_config() {
  SchedulerConfig config;
  config.max_running_requests = 8;
  config.max_total_tokens = 256;
  config.page_size = 4;
  config.context_length = 128;
  config.chunked_prefill_size = 16;
  config.vocab_size = 64;
  config.eos_ids = {0, 1};
  return config;
}

std::shared_ptr<const TokenBytes> small_vocabulary(int32_t vocab_size) {
  auto tokens = std::make_shared<TokenBytes>();
  tokens->offsets.push_back(0);
  for (int32_t id = 0; id < vocab_size; id++) {
    tokens->bytes += std::string(size_t(1 + id % 3), char('a' + id % 5));
    tokens->offsets.push_back(uint32_t(tokens->bytes.size()));
    tokens->control.push_back(id < 2);
  }
  return tokens;
}

std::vector<int32_t> prompt(int32_t n, int32_t flavour) {
  std::vector<int32_t> ids(n);
  for (int32_t i = 0; i < n; i++) ids[i] = 2 + (i * 7 + flavour * 13 + i * i % 11) % 60;
  return ids;
}

Request make_request(RequestId id, std::vector<int32_t> prompt_ids, int32_t max_tokens) {
  Request r;
  r.id = id;
  r.prompt_ids = std::move(prompt_ids);
  r.params.max_tokens = max_tokens;
  r.params.seed = id;
  r.params.ignore_eos = true;
  r.arrival = Clock::now();
  return r;
}

Harness::Harness(SchedulerConfig c, EventLoop loop)
    : config(std::move(c)), tokens(small_vocabulary(config.vocab_size)), worker(config) {
  scheduler = std::make_unique<Scheduler>(
      config, Scheduler::Deps{worker, worker, *this, inbox, tokens, metrics, tracer,
                              [this](int32_t page) { worker.poison(page); }});
  scheduler->set_loop(loop);
  watch = std::make_unique<StepWatch>(*scheduler, config, worker, received);
}

Harness::~Harness() {
  // A test that ended early leaves batches in flight.
  if (::testing::Test::HasFailure() || std::uncaught_exceptions() > 0) run_until_idle();
  for (const std::string& error : worker.errors()) ADD_FAILURE() << error;
  EXPECT_EQ(scheduler->stats().kv_healed, 0);
}

void Harness::push(SchedulerMessage message) {
  watch->on_sent(message);
  ASSERT_TRUE(inbox.try_push(std::move(message)));
}

LoopWait Harness::step_host() {
  watch->before_step();
  const LoopWait wait = scheduler->step();
  steps++;
  EXPECT_EQ(scheduler->check_memory(), "") << "after step " << steps;
  watch->after_step(wait, inbox.size() == 0);
  return wait;
}

LoopWait Harness::step() {
  const LoopWait wait = step_host();
  if (wait == LoopWait::kResult || wait == LoopWait::kResultOrRequests) worker.run_one();
  return wait;
}

LoopWait Harness::settle() {
  for (;;) {
    if (const LoopWait wait = step_host(); wait != LoopWait::kNothing) return wait;
  }
}

void Harness::run_until_idle() {
  for (int i = 0; i < 100000; i++) {
    const LoopWait wait = step();
    if (wait == LoopWait::kStopped || (wait == LoopWait::kRequests && inbox.size() == 0)) return;
  }
  ADD_FAILURE() << "never idle";
}

void Harness::on_tokens(std::vector<TokenDelta> deltas) {
  calls_to_sink++;
  EXPECT_FALSE(deltas.empty());
  for (TokenDelta& delta : deltas) {
    const std::string who = fmt::format("request {}.{}", delta.id, delta.choice);
    const bool known = received.contains({delta.id, delta.choice});
    Received& r = received[{delta.id, delta.choice}];
    EXPECT_FALSE(r.finish.has_value()) << who << ": a delta after the last one";
    EXPECT_EQ(delta.first, !known) << who;
    EXPECT_TRUE(delta.token || delta.finish) << who << ": an empty delta";
    EXPECT_GE(delta.visible_bytes, r.visible_bytes) << who << ": shown text is taken back";
    r.visible_bytes = delta.visible_bytes;
    if (delta.first) {
      r.prompt_tokens = delta.prompt_tokens;
      r.cached_tokens = delta.cached_tokens;
      r.prompt_logprobs = std::move(delta.prompt_logprobs);
      EXPECT_TRUE(r.cached_tokens >= 0 && r.cached_tokens <= r.prompt_tokens) << who;
    }
    if (delta.token) {
      EXPECT_GE(delta.token->id, 0) << who;
      r.ids.push_back(delta.token->id);
      r.logprobs.push_back(delta.token->logprob);
      r.steps.push_back(worker.n_steps());
    }
    if (delta.finish && delta.finish->reason == FinishReason::kError &&
        delta.finish->status.code() == StatusCode::kInternal)
      watch->on_error({delta.id, delta.choice});
    if (delta.finish) r.finish = std::move(delta.finish);
  }
}

void Harness::expect_answer(const Request& request, int32_t choice) const {
  const std::string who = fmt::format("request {}.{}", request.id, choice);
  ASSERT_TRUE(has(request.id, choice)) << who << " was never answered";
  const Received& r = got(request.id, choice);
  const Answer a = expected(request, choice);
  ASSERT_TRUE(r.finish) << who << " never ended";
  EXPECT_EQ(r.prompt_tokens, int32_t(request.prompt_ids.size())) << who;
  EXPECT_EQ(r.ids, a.ids) << who;
  EXPECT_EQ(r.finish->reason, a.finish.reason) << who;
  EXPECT_EQ(r.finish->matched, a.finish.matched) << who;
  EXPECT_EQ(r.visible_bytes, int64_t(a.visible.size())) << who;
  if (request.params.top_logprobs >= 0) {
    EXPECT_EQ(r.logprobs, a.logprobs) << who;
  }
  ASSERT_EQ(r.prompt_logprobs.size(), a.prompt_logprobs.size()) << who;
  for (size_t i = 0; i < a.prompt_logprobs.size(); i++) {
    EXPECT_EQ(r.prompt_logprobs[i].id, request.prompt_ids[request.prompt_logprob_begin + 1 + i]) << who;
    EXPECT_EQ(r.prompt_logprobs[i].logprob, a.prompt_logprobs[i]) << who;
  }
}

void Harness::expect_answer_or_cut(const Request& request, int32_t choice, bool aborted) const {
  const std::string who = fmt::format("request {}.{}", request.id, choice);
  ASSERT_TRUE(has(request.id, choice)) << who << " was never answered";
  const Received& r = got(request.id, choice);
  ASSERT_TRUE(r.finish) << who << " never ended";
  const FinishReason reason = r.finish->reason;
  if (reason != FinishReason::kAbort && reason != FinishReason::kError) return expect_answer(request, choice);
  const Answer a = expected(request, choice);
  EXPECT_EQ(r.prompt_tokens, int32_t(request.prompt_ids.size())) << who;
  EXPECT_LT(r.ids.size(), a.ids.size() + (request.params.max_tokens == 0)) << who;
  const size_t n = std::min(r.ids.size(), a.ids.size());
  EXPECT_EQ(r.ids, std::vector<int32_t>(a.ids.begin(), a.ids.begin() + n)) << who;
  if (reason == FinishReason::kAbort) {
    EXPECT_TRUE(aborted) << who;
    EXPECT_EQ(r.finish->status.code(), StatusCode::kCancelled) << who;
  } else {
    EXPECT_EQ(r.finish->status.message(), "injected") << who;
  }
}

void Harness::expect_nothing_left() {
  EXPECT_EQ(scheduler->check_memory(), "");
  const SchedulerStats stats = scheduler->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.queued, 0);
  EXPECT_EQ(stats.kv_used_tokens, 0);
  EXPECT_EQ(stats.kv_healed, 0);
}

}  // namespace gapless::testing
