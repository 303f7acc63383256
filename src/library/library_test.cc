// The library as its users see it, on the simulated accelerator.
#include <gapless/engine.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <stdexcept>

namespace gapless {
namespace {

Engine::Options sim_options() {
  return {.device = "sim:h100-llama3.2-1b", .kv_cache_bytes = 512 << 20};
}

// Runs one request to its end. Its callbacks come one at a time, so `deltas` needs no lock.
struct Answer {
  std::vector<Engine::Delta> deltas;
  Engine::Outcome outcome;

  std::vector<int32_t> ids(int32_t choice = 0) const {
    std::vector<int32_t> out;
    for (const Engine::Delta& d : deltas)
      for (const Engine::Token& t : d.tokens)
        if (d.choice == choice) out.push_back(t.id);
    return out;
  }
  std::string text() const {
    std::string out;
    for (const Engine::Delta& d : deltas) out += d.text;
    return out;
  }
};
Answer ask(Engine& engine, Engine::Request request) {
  Answer answer;
  auto ended = std::make_shared<std::promise<Engine::Outcome>>();
  engine.submit(
      std::move(request), [&answer](const Engine::Delta& delta) { answer.deltas.push_back(delta); },
      [ended](const Engine::Outcome& outcome) { ended->set_value(outcome); });
  answer.outcome = ended->get_future().get();
  return answer;
}

Engine::Request greedy(Engine::Prompt prompt, int32_t max_tokens) {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .sampling = {.temperature = 0, .ignore_eos = true}};
}

class Library : public ::testing::Test {
 protected:
  Engine engine_{sim_options()};
};

TEST_F(Library, AnswersATextIdsAndAChat) {
  const Answer text = ask(engine_, greedy("three rivers", 8));
  ASSERT_FALSE(text.outcome.failure) << text.outcome.failure->message;
  EXPECT_EQ(text.ids().size(), 8u);
  EXPECT_EQ(text.outcome.completion_tokens, 8);
  EXPECT_EQ(text.deltas.back().finish, Engine::Finish::kLength);

  const std::vector<int32_t> ids = engine_.tokenize("three rivers", true);
  EXPECT_EQ(text.outcome.prompt_tokens, int32_t(ids.size()));
  EXPECT_EQ(ask(engine_, greedy(ids, 8)).ids(), text.ids());
  EXPECT_EQ(engine_.detokenize(text.ids()), text.text());

  ASSERT_TRUE(engine_.model().has_chat_template);
  const Answer chat = ask(engine_, greedy(std::vector<Engine::Message>{{"user", "three rivers"}}, 4));
  EXPECT_GT(chat.outcome.prompt_tokens, text.outcome.prompt_tokens);
  EXPECT_EQ(chat.ids().size(), 4u);
}

TEST_F(Library, ChoicesLogprobsAndSeedsReachTheSampler) {
  Engine::Request request = greedy("sea", 5);
  request.n = 3;
  request.sampling.temperature = 2;
  request.sampling.seed = 7;
  request.sampling.top_logprobs = 2;
  const Answer first = ask(engine_, request), again = ask(engine_, request);
  for (int32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(first.ids(choice).size(), 5u);
    EXPECT_EQ(first.ids(choice), again.ids(choice));
  }
  EXPECT_NE(first.ids(0), first.ids(1));
  const Engine::Token& token = first.deltas.front().tokens.front();
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_GE(token.top[0].logprob, token.top[1].logprob);
  EXPECT_LT(token.logprob, 0);
}

TEST_F(Library, AGrammarLimitsTheAnswer) {
  Engine::Request request{.prompt = "sea", .max_tokens = 64, .sampling = {.temperature = 2, .seed = 3}};
  request.grammar = {Engine::Grammar::Kind::kRegex, "(yes|no) sir"};
  const Answer regex = ask(engine_, request);
  ASSERT_FALSE(regex.outcome.failure) << regex.outcome.failure->message;
  EXPECT_TRUE(regex.text() == "yes sir" || regex.text() == "no sir") << regex.text();
  request.grammar = {Engine::Grammar::Kind::kJsonSchema, R"({"enum": [12]})"};
  EXPECT_EQ(ask(engine_, request).text(), "12");
  request.grammar = {Engine::Grammar::Kind::kLark, R"(start: "a" "b")"};
  EXPECT_EQ(ask(engine_, request).text(), "ab");
}

TEST_F(Library, AStopStringEndsTheAnswerBeforeIt) {
  const Answer whole = ask(engine_, greedy("sea", 12));
  Engine::Request request = greedy("sea", 12);
  request.stop = {engine_.detokenize({whole.ids()[6]})};
  const Answer stopped = ask(engine_, request);
  EXPECT_EQ(stopped.deltas.back().finish, Engine::Finish::kStop);
  EXPECT_EQ(stopped.text().find(request.stop[0]), std::string::npos);
  EXPECT_TRUE(whole.text().starts_with(stopped.text()));
}

TEST_F(Library, WhatIsOutOfRangeIsNamedInTheOutcome) {
  const std::vector<std::pair<const char*, void (*)(Engine::Request&)>> cases = {
      {"temperature", [](Engine::Request& r) { r.sampling.temperature = 3; }},
      {"temperature", [](Engine::Request& r) { r.sampling.temperature = std::nanf(""); }},
      {"top_p", [](Engine::Request& r) { r.sampling.top_p = 0; }},
      {"top_k", [](Engine::Request& r) { r.sampling.top_k = -5; }},
      {"repetition_penalty", [](Engine::Request& r) { r.sampling.repetition_penalty = 0; }},
      {"top_logprobs", [](Engine::Request& r) { r.sampling.top_logprobs = 21; }},
      {"logit_bias",
       [](Engine::Request& r) {
         r.sampling.logit_bias = {{1, 101.0f}};
       }},
      {"logit_bias",
       [](Engine::Request& r) {
         r.sampling.logit_bias = {{-1, 1.0f}};
       }},
      {"stop_token_ids", [](Engine::Request& r) { r.sampling.stop_token_ids = {-1}; }},
      {"stop", [](Engine::Request& r) { r.stop = {""}; }},
      {"n", [](Engine::Request& r) { r.n = 0; }},
      {"max_tokens", [](Engine::Request& r) { r.max_tokens = -1; }},
      {"prompt", [](Engine::Request& r) { r.prompt = std::vector<int32_t>{-1}; }},
      {"prompt", [](Engine::Request& r) { r.prompt = std::vector<int32_t>(); }},
      {"grammar",
       [](Engine::Request& r) {
         r.grammar = {Engine::Grammar::Kind::kRegex, "("};
       }},
      {"messages",
       [](Engine::Request& r) {
         r.prompt = std::vector<Engine::Message>{{"nobody", "x"}};
       }},
  };
  for (const auto& [field, spoil] : cases) {
    Engine::Request request = greedy("sea", 4);
    spoil(request);
    const Answer refused = ask(engine_, request);
    ASSERT_TRUE(refused.outcome.failure) << field;
    EXPECT_EQ(refused.outcome.failure->kind, Engine::FailureKind::kInvalid) << field;
    EXPECT_TRUE(refused.outcome.failure->field.starts_with(field)) << refused.outcome.failure->field;
    EXPECT_TRUE(refused.deltas.empty());
  }
}

TEST_F(Library, AnAbortedRequestEndsOnce) {
  auto begun = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<Engine::Outcome>>();  // a second end would throw
  const uint64_t id = engine_.submit(
      greedy("sea", 100000),
      [begun, first = true](const Engine::Delta&) mutable {
        if (std::exchange(first, false)) begun->set_value();
      },
      [ended](const Engine::Outcome& outcome) { ended->set_value(outcome); });
  begun->get_future().wait();
  engine_.abort(id);
  const Engine::Outcome outcome = ended->get_future().get();
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->kind, Engine::FailureKind::kAborted);
  engine_.abort(id);
  engine_.abort(987654321);
}

TEST_F(Library, CallbacksMayBeEmptyAndMaySubmit) {
  auto ended = std::make_shared<std::promise<Engine::Outcome>>();
  engine_.submit(greedy("sea", 2), {}, [this, ended](const Engine::Outcome&) {
    engine_.submit(greedy("river", 2), {},
                   [ended](const Engine::Outcome& second) { ended->set_value(second); });
  });
  engine_.submit(greedy("lake", 2), {}, {});
  EXPECT_EQ(ended->get_future().get().completion_tokens, 2);
}

TEST_F(Library, SaysWhatItServesAndHowBusyItIs) {
  EXPECT_EQ(engine_.model().name, "sim:h100-llama3.2-1b");
  EXPECT_GT(engine_.model().vocab_size, 0);
  EXPECT_GT(engine_.stats().kv_tokens, 0);
  ask(engine_, greedy(std::vector<int32_t>(100, 5), 2));
  EXPECT_NE(engine_.metrics().find("gapless_generation_tokens_total 2"), std::string::npos)
      << engine_.metrics();
  EXPECT_THROW(engine_.detokenize({-1}), std::invalid_argument);
}

TEST(LibraryStart, TwoEnginesShareAProcessAndTheLoopsAgree) {
  Engine overlap(sim_options());
  Engine::Options options = sim_options();
  options.overlap = false;
  Engine normal(options);
  EXPECT_EQ(ask(overlap, greedy("two rivers", 16)).ids(), ask(normal, greedy("two rivers", 16)).ids());
}

TEST(LibraryStart, AnEngineThatGoesEndsWhatIsOpen) {
  auto ended = std::make_shared<std::promise<Engine::Outcome>>();
  {
    Engine engine(sim_options());
    engine.submit(greedy("sea", 100000), {},
                  [ended](const Engine::Outcome& outcome) { ended->set_value(outcome); });
  }
  std::future<Engine::Outcome> outcome = ended->get_future();
  ASSERT_EQ(outcome.wait_for(std::chrono::seconds(0)), std::future_status::ready)
      << "before the destructor has returned";
  EXPECT_TRUE(outcome.get().failure);
}

TEST(LibraryStart, WhatCannotBeMeantThrows) {
  EXPECT_THROW(Engine({}), std::invalid_argument);
  EXPECT_THROW(Engine({.model_path = "/nowhere/model.gguf"}), std::exception);
  EXPECT_THROW(Engine({.device = "sim:nothing"}), std::invalid_argument);
  Engine::Options options = sim_options();
  options.max_running_requests = -1;
  EXPECT_THROW(Engine{options}, std::invalid_argument);
}

}  // namespace
}  // namespace gapless
