// A whole engine on the simulated accelerator, which needs no model file.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/sim/sim_device.h"
#include "engine/engine.h"
#include "engine/testing/collect.h"
#include "model/sim/sim_file.h"
#include "model/sim/sim_model.h"

namespace gapless {
namespace {

EngineOptions sim_options(const std::string& device) {
  EngineOptions options;
  options.device = device;
  options.scheduler.max_total_tokens = 8192;
  return options;
}

GenerateRequest greedy_request(std::vector<int32_t> ids, int32_t max_tokens) {
  GenerateRequest r;
  r.prompt = std::move(ids);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.sampling.ignore_eos = true;
  return r;
}

std::vector<int32_t> expected(std::vector<int32_t> ids, int32_t count, const SimModel& model) {
  const size_t n_prompt = ids.size();
  while (int32_t(ids.size() - n_prompt) < count) {
    const std::vector<float> logits = sim_logits(ids, model.vocab_size, sim_readback(model));
    ids.push_back(int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {ids.begin() + ptrdiff_t(n_prompt), ids.end()};
}

TEST(SimEngine, EveryProfileAnswersAsItsModel) {
  for (const std::string& name : sim_profile_names()) {
    const auto engine = Engine::create(sim_options("sim:" + name)).value();
    EXPECT_EQ(engine->model().id, "sim:" + name);
    EXPECT_TRUE(engine->model().has_chat_template);
    const SimModel model = find_sim_profile(name).value().model;
    std::vector<GenerateRequest> requests;
    for (int32_t i = 0; i < 12; ++i)
      requests.push_back(greedy_request(std::vector<int32_t>(size_t(3 + 7 * i), 10 + i), 8));
    const std::vector<testing::Outcome> outcomes = testing::run_together(*engine, requests);
    for (int32_t i = 0; i < 12; ++i) {
      EXPECT_TRUE(outcomes[size_t(i)].status.is_ok()) << outcomes[size_t(i)].status.message();
      EXPECT_EQ(outcomes[size_t(i)].answers[0].ids,
                expected(std::vector<int32_t>(size_t(3 + 7 * i), 10 + i), 8, model))
          << name << ", request " << i;
    }
  }
}

TEST(SimEngine, ItsVocabularyIsText) {
  const auto engine = Engine::create(sim_options("sim")).value();
  const Tokenizer& tokenizer = *engine->parts().tokenizer;
  EXPECT_EQ(std::vector(tokenizer.eos_ids().begin(), tokenizer.eos_ids().end()),
            (std::vector{kSimTurnEnd, kSimEndOfText}));
  for (const std::string text : {"Hello, world 42!\n", "time school", "A way of life <|im_end|> {x}"})
    EXPECT_EQ(tokenizer.decode(engine->tokenize(text, false, false).value(), false), text);
  EXPECT_EQ(engine->tokenize("a day of work", false, false)->size(), 1u + 1 + 3 + 1);  // a, day, " of", work
  for (int32_t id = kSimEndOfText + 1; id < tokenizer.vocab_size(); ++id)
    for (const char c : tokenizer.token_bytes().of(id))
      EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << id;
}

TEST(SimEngine, TheKvPoolIsTheMachines) {
  EngineOptions options = sim_options("sim:h100-llama3-8b");
  options.scheduler.max_total_tokens = 0;
  options.scheduler.max_running_requests = 256;
  const auto engine = Engine::create(options).value();
  const int64_t tokens = engine->parts().sizing.scheduler.max_total_tokens;
  EXPECT_GT(tokens, 400'000);  // (0.9 * 80 - 15.0) GB at 131,072 bytes a token
  EXPECT_LT(tokens, 450'000);
}

TEST(SimEngine, OnlyTheSimulatedDeviceNeedsNoFile) {
  const Status status = Engine::create(sim_options("cpu")).status();
  EXPECT_EQ(status.error_code(), kUsageErrorCode);
  EXPECT_NE(status.message().find("give FILE"), std::string::npos) << status.message();
  const Status unknown = Engine::create(sim_options("sim:abacus")).status();
  EXPECT_EQ(unknown.error_code(), kUsageErrorCode);
  EXPECT_NE(unknown.message().find("b200-llama3.2-1b"), std::string::npos) << unknown.message();
}

}  // namespace
}  // namespace gapless
