// A whole engine on the simulated accelerator, which needs no model file.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>

#include "device/sim/sim_device.h"
#include "engine/engine.h"
#include "engine/testing/collect.h"
#include "model/sim/sim_file.h"
#include "model/sim/sim_model.h"
#include "model/testing/tiny_model.h"

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

TEST(SimEngine, ASnapshotShowsWhatRunsByItsName) {
  const auto engine = Engine::create(sim_options("sim:h100-llama3-8b")).value();
  const auto ask = [&] {
    auto answer = std::make_shared<std::promise<SchedulerSnapshot>>();
    EXPECT_TRUE(
        engine->take_snapshot([answer](SchedulerSnapshot&& taken) { answer->set_value(std::move(taken)); }));
    return answer->get_future().get();
  };
  EXPECT_TRUE(ask().requests.empty());
  GenerateRequest request = greedy_request({10, 11, 12}, 4000);
  request.rid = "a name";
  auto sink = std::make_shared<testing::CollectingSink>(1);
  const RequestId id = engine->submit(std::move(request), sink);
  sink->wait_for_tokens(1);
  const SchedulerSnapshot shot = ask();
  ASSERT_EQ(shot.requests.size(), 1u);
  EXPECT_EQ(shot.requests[0].id, id);
  EXPECT_EQ(shot.requests[0].rid, "a name");
  EXPECT_EQ(shot.requests[0].prompt, 3);
  EXPECT_EQ(shot.pages.page_size, engine->model().page_size);
  engine->stop();
  EXPECT_FALSE(engine->take_snapshot([](SchedulerSnapshot&&) {}));
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

TEST(SimEngine, AWrongTemplateIsToldBeforeTheModelIsRead) {
  EngineOptions options = sim_options("cpu");
  options.model_path = "no such file";
  options.chat_template = "nope";
  const Status refused = Engine::create(options).status();
  EXPECT_EQ(refused.error_code(), kUsageErrorCode);
  EXPECT_NE(refused.message().find("--chat-template nope: neither"), std::string::npos) << refused.message();
}

TEST(SimEngine, ARealModelIsRefusedAndItsOwnIsNot) {
  EngineOptions options = sim_options("sim:zero");
  options.model_path = ::testing::TempDir() + "/a_file.gguf";
  const auto write = [&](const void* data, size_t bytes) {
    std::ofstream(options.model_path, std::ios::binary)
        .write(static_cast<const char*>(data), std::streamsize(bytes));
  };
  const auto real = testing::tiny_llama();
  write(real.data(), real.size());
  const Status refused = Engine::create(options).status();
  EXPECT_EQ(refused.error_code(), kUsageErrorCode);
  EXPECT_NE(refused.message().find("--device sim:zero"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("leave " + options.model_path + " out"), std::string::npos)
      << refused.message();
  const std::vector<std::byte> own = sim_model_file(find_sim_profile("zero").value());
  write(own.data(), own.size());
  EXPECT_TRUE(Engine::create(options).is_ok());
}

TEST(SimEngine, MetricsCountTheStepsOfTheSimulatedDeviceAlone) {
  const auto engine = Engine::create(sim_options("sim:cpu-smollm2")).value();
  testing::run_together(*engine, {greedy_request({10, 11, 12}, 4)});
  const auto* sim = dynamic_cast<const SimDevice*>(engine->parts().device.get());
  // A step that was launched ahead may still end meanwhile.
  const SimDevice::Stats before = sim->stats();
  const std::string text = engine->metrics().prometheus_text();
  const SimDevice::Stats after = sim->stats();
  const auto value_of = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size() + 2));
  };
  EXPECT_GE(before.steps, 4);
  EXPECT_GE(value_of("gapless_sim_steps_total"), before.steps) << text;
  EXPECT_LE(value_of("gapless_sim_steps_total"), after.steps);
  EXPECT_GE(value_of("gapless_sim_late_steps_total"), before.overruns) << text;
  EXPECT_LE(value_of("gapless_sim_late_steps_total"), after.overruns);
}

}  // namespace
}  // namespace gapless
