// A whole engine on a tiny random Llama: life and death of requests.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "engine/testing/collect.h"
#include "model/testing/tiny_model.h"

namespace gapless {
namespace {

using testing::CollectingSink;
using testing::Outcome;

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.model_path = ::testing::TempDir() + fmt::format("engine-test-{}.gguf", getpid());
    ASSERT_TRUE(testing::write_file(options_.model_path, testing::tiny_llama()).is_ok());
    options_.threads = 2;
    options_.scheduler.max_total_tokens = 8192;
  }
  void TearDown() override { std::filesystem::remove(options_.model_path); }

  void start() {
    Result<std::unique_ptr<Engine>> engine = Engine::create(options_);
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine_ = std::move(engine).value();
  }
  static GenerateRequest ids_request(std::vector<int32_t> ids, int32_t max_tokens) {
    GenerateRequest r;
    r.prompt = std::move(ids);
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    return r;
  }
  Outcome run(GenerateRequest r) { return testing::run_alone(*engine_, {std::move(r)})[0]; }
  // Nothing runs, waits or holds KV beyond the prefix cache.
  void expect_drained() {
    for (int i = 0;
         i < 2000 && (engine_->load().running || engine_->load().queued || engine_->open_requests()); i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine_->load().running, 0);
    EXPECT_EQ(engine_->load().queued, 0);
    EXPECT_EQ(engine_->open_requests(), 0u);
    engine_->flush_cache();
    EXPECT_EQ(engine_->load().kv_tokens_used, 0);
    EXPECT_EQ(engine_->scheduler().stats().kv_healed, 0);
  }

  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnswersAndCounts) {
  start();
  const Outcome o = run(ids_request({10, 11, 12}, 5));
  EXPECT_TRUE(o.status.is_ok()) << o.status.message();
  EXPECT_EQ(o.answers[0].ids.size(), 5u);
  EXPECT_EQ(o.answers[0].finish, "length");
  EXPECT_EQ(o.usage.prompt_tokens, 3);
  EXPECT_EQ(o.usage.completion_tokens, 5);
  EXPECT_EQ(o.usage.cached_tokens, 0);
  expect_drained();
}

TEST_F(EngineTest, AGrammarThatCannotBeReadIsRefusedWithItsField) {
  start();
  GenerateRequest r = ids_request({10, 11, 12}, 5);
  r.grammar = GrammarSpec{GrammarSpec::Kind::kRegex, "("};
  r.grammar_field = "guided_regex";
  const Outcome o = run(std::move(r));
  EXPECT_EQ(o.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(o.status.param(), "guided_regex");
  EXPECT_TRUE(o.status.message().starts_with("guided_regex: ")) << o.status.message();
  expect_drained();
}

TEST_F(EngineTest, ScoringNeedsNoOutput) {
  start();
  GenerateRequest r = ids_request({10, 11, 12, 13}, 0);
  r.want_prompt_logprobs = true;
  r.sampling.top_logprobs = 1;
  const Outcome o = run(std::move(r));
  EXPECT_TRUE(o.status.is_ok()) << o.status.message();
  EXPECT_EQ(o.prompt_logprob_bits.size(), 3u * 3);
  EXPECT_EQ(o.usage.completion_tokens, 0);
  EXPECT_EQ(o.answers[0].finish, "length");
}

// Whichever of several choices is computed first: what the prompt scored is there before its first token.
TEST_F(EngineTest, ThePromptIsScoredBeforeAnyChoiceBegins) {
  struct Sink : ResponseSink {
    void on_event(ResponseEvent event) override {
      scored += std::holds_alternative<PromptScored>(event);
      if (std::holds_alternative<ChoiceDelta>(event)) early += scored == 0;
      if (std::holds_alternative<Done>(event)) done.set();
    }
    int scored = 0, early = 0;
    HostEvent done;
  };
  options_.scheduler.policy = SchedulePolicy::kRandom;
  options_.scheduler.max_running_requests = 2;
  start();
  for (int i = 0; i < 8; i++) {
    GenerateRequest r = ids_request({10, 11, 12, 13 + i}, 3);
    r.want_prompt_logprobs = true;
    r.n = 6;
    auto sink = std::make_shared<Sink>();
    engine_->submit(std::move(r), sink);
    (void)sink->done.wait();
    EXPECT_EQ(sink->scored, 1);
    EXPECT_EQ(sink->early, 0);
  }
}

// Over-long prompts crashed, were cut silently or gave an empty answer elsewhere.
TEST_F(EngineTest, A_PA_3_PromptAndContext) {
  options_.context_length = 64;
  start();
  const Outcome over = run(ids_request(std::vector<int32_t>(65, 20), 1));
  EXPECT_EQ(over.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(over.status.error_code(), "context_length_exceeded");
  EXPECT_NE(over.status.message().find("65"), std::string::npos) << over.status.message();
  EXPECT_NE(over.status.message().find("64"), std::string::npos) << over.status.message();
  EXPECT_FALSE(run(ids_request(std::vector<int32_t>(64, 20), 1)).status.is_ok());
  const Outcome clipped = run(ids_request(std::vector<int32_t>(60, 20), 100));
  EXPECT_EQ(clipped.answers[0].ids.size(), 4u);
  EXPECT_EQ(clipped.answers[0].finish, "length");
  GenerateRequest scoring = ids_request(std::vector<int32_t>(64, 20), 0);
  scoring.want_prompt_logprobs = true;
  EXPECT_TRUE(run(std::move(scoring)).status.is_ok());
}

TEST_F(EngineTest, A_PA_5_TokenIdsOutsideTheVocabulary) {
  start();
  for (int32_t bad : {-1, 512, 999999}) {
    const Outcome o = run(ids_request({10, bad}, 1));
    EXPECT_EQ(o.status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(o.status.param(), "prompt");
  }
  EXPECT_TRUE(run(ids_request({10}, 1)).status.is_ok());
}

TEST_F(EngineTest, A_PA_6_LogitBiasOutsideTheVocabulary) {
  start();
  GenerateRequest r = ids_request({10}, 1);
  r.sampling.logit_bias = {{191222, -100.f}};
  EXPECT_EQ(run(r).status.param(), "logit_bias");
  const int32_t token = run(ids_request({10}, 1)).answers[0].ids[0];
  r.sampling.logit_bias = {{token, -100.f}};
  EXPECT_NE(run(r).answers[0].ids[0], token);
}

TEST_F(EngineTest, AnEmptyPromptWithoutBosIsRefused) {
  start();
  GenerateRequest r = ids_request({}, 1);
  EXPECT_EQ(run(r).status.code(), StatusCode::kInvalidArgument);
}

// The same greedy prompt again and again: the first answer is computed, the later ones are cached.
TEST_F(EngineTest, A_PC_1_ColdAndCachedAnswersAreEqual) {
  start();
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 200; i++) prompt.push_back(10 + i * 7 % 400);
  GenerateRequest r = ids_request(prompt, 32);
  r.sampling.top_logprobs = 2;
  const Outcome cold = run(r);
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  for (int i = 0; i < 3; i++) {
    const Outcome cached = run(r);
    EXPECT_GE(cached.usage.cached_tokens, 192);
    EXPECT_EQ(cached.answers, cold.answers);
  }
}

TEST_F(EngineTest, A_PC_3_APrefixIsSharedWhileTheOtherRequestRuns) {
  start();
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 512; i++) prompt.push_back(10 + i * 11 % 400);
  auto first = std::make_shared<CollectingSink>(1);
  const RequestId id = engine_->submit(ids_request(prompt, 1000), first);
  first->wait_for_tokens(1);
  prompt.push_back(77);
  EXPECT_GE(run(ids_request(prompt, 4)).usage.cached_tokens, 496);
  engine_->abort(id);
  (void)first->wait();
  expect_drained();
}

TEST_F(EngineTest, EightIdenticalPromptsTogetherAreComputedOnce) {
  start();
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 512; i++) prompt.push_back(10 + i * 13 % 400);
  const std::vector<Outcome> all =
      testing::run_together(*engine_, std::vector<GenerateRequest>(8, ids_request(prompt, 3)));
  int32_t computed = 0;
  for (const Outcome& o : all) computed += o.usage.prompt_tokens - o.usage.cached_tokens;
  EXPECT_LE(computed, 512 + 7 * (options_.scheduler.page_size + 1));
  for (const Outcome& o : all) EXPECT_EQ(o.answers, all[0].answers);
}

// Shared pool full: elsewhere every running request failed. Here the newest steps back and nobody notices.
TEST_F(EngineTest, A_KV_3_AFullPoolRetractsAndEverybodyFinishes) {
  std::vector<GenerateRequest> requests;
  for (int32_t i = 0; i < 4; i++) requests.push_back(ids_request({10 + i, 20, 30}, 300));
  options_.scheduler.max_total_tokens = 640;
  options_.scheduler.schedule_conservativeness = 0.1;  // admit as if answers were short
  start();
  const std::vector<Outcome> small = testing::run_together(*engine_, requests);
  EXPECT_GT(engine_->scheduler().stats().retractions, 0);
  expect_drained();
  options_.scheduler.max_total_tokens = 8192;
  start();
  const std::vector<Outcome> large = testing::run_together(*engine_, requests);
  for (size_t i = 0; i < requests.size(); i++) {
    EXPECT_TRUE(small[i].status.is_ok()) << small[i].status.message();
    EXPECT_EQ(small[i].answers, large[i].answers);
  }
}

// Prompts and decoded tokens in one step: elsewhere rows were shifted, and answers got worse without an
// error.
TEST_F(EngineTest, A_MC_1_MixedStepsShiftNothing) {
  std::vector<GenerateRequest> requests;
  for (int32_t i = 0; i < 12; i++) {
    std::vector<int32_t> prompt;
    for (int32_t t = 0; t < 1 + i * 37; t++) prompt.push_back(10 + (t * 7 + i) % 400);
    requests.push_back(ids_request(std::move(prompt), 30));
    requests.back().sampling.top_logprobs = 1;
    if (i % 3 == 0) requests.back().sampling.logit_bias = {{20 + i, 3.0f}};
  }
  std::vector<std::vector<Outcome>> runs;
  for (const bool mixed : {true, false}) {
    options_.scheduler.mixed_chunk = mixed;
    options_.scheduler.chunked_prefill_size = 24;
    start();
    runs.push_back(testing::run_together(*engine_, requests));
  }
  for (size_t i = 0; i < requests.size(); i++) EXPECT_EQ(runs[0][i].answers, runs[1][i].answers) << i;
}

TEST_F(EngineTest, A_SD_2_WithoutASeedAnswersDiffer) {
  start();
  GenerateRequest r = ids_request({10, 11, 12}, 20);
  r.sampling.temperature = 1;
  std::vector<std::vector<int32_t>> answers;
  for (int i = 0; i < 5; i++) answers.push_back(run(r).answers[0].ids);
  r.n = 5;
  for (const auto& a : run(r).answers) answers.push_back(a.ids);
  std::sort(answers.begin(), answers.end());
  EXPECT_EQ(std::unique(answers.begin(), answers.end()), answers.end());
}

TEST_F(EngineTest, A_AB_2_HundredsOfAbortedRequestsLeaveNothing) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  options_.scheduler.max_running_requests = 8;
  start();
  for (int round = 0; round < 10; round++) {
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    std::vector<RequestId> ids;
    for (int i = 0; i < 30; i++) {
      sinks.push_back(std::make_shared<CollectingSink>(2));
      GenerateRequest r = ids_request(std::vector<int32_t>(1 + random() % 700, 20), 60);
      r.n = 2;
      ids.push_back(engine_->submit(std::move(r), sinks.back()));
    }
    for (int i = 0; i < 30; i++) {
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      if (random() % 4 == 0) sinks[i]->wait_for_tokens(1);
      engine_->abort(ids[i]);
    }
    for (auto& sink : sinks) (void)sink->wait();
  }
  EXPECT_TRUE(run(ids_request({10}, 3)).status.is_ok());
  expect_drained();
}

// An abort that overtook its request on the way to the scheduler was lost, and the request ran to its end.
TEST_F(EngineTest, A_AB_1_AnAbortRightBehindItsRequestIsNotLost) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  start();
  for (int i = 0; i < 2000; i++) {
    auto sink = std::make_shared<CollectingSink>(1);
    const RequestId id = engine_->submit(ids_request({10, 20, 30}, 1000), sink);
    const auto moment = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 100);
    while (std::chrono::steady_clock::now() < moment) continue;
    engine_->abort(id);
    const Outcome o = sink->wait();
    ASSERT_TRUE(o.status.code() == StatusCode::kCancelled || o.answers[0].finish == "abort") << i;
  }
  expect_drained();
}

TEST_F(EngineTest, TwoEnginesInOneProcess) {
  start();
  std::unique_ptr<Engine> other = Engine::create(options_).value();
  const std::vector<GenerateRequest> requests(8, ids_request({10, 11}, 20));
  EXPECT_EQ(testing::run_together(*other, requests)[0].answers,
            testing::run_together(*engine_, requests)[7].answers);
}

TEST_F(EngineTest, StoppingAnswersEveryOpenRequest) {
  start();
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < 20; i++) {
    sinks.push_back(std::make_shared<CollectingSink>(1));
    engine_->submit(ids_request({10, 11}, 1000), sinks.back());
  }
  sinks[0]->wait_for_tokens(1);
  engine_->stop();
  for (auto& sink : sinks) (void)sink->wait();
  auto late = std::make_shared<CollectingSink>(1);
  engine_->submit(ids_request({10}, 1), late);
  EXPECT_EQ(late->wait().status.code(), StatusCode::kUnavailable);
}

TEST_F(EngineTest, ABadFileIsRefusedByName) {
  options_.model_path = ::testing::TempDir() + "no-such-model.gguf";
  EXPECT_NE(Engine::create(options_).status().message().find("no-such-model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace gapless
