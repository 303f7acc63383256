#include "engine/testing/collect.h"

#include <bit>

namespace gapless::testing {
namespace {

std::string finish_text(const Finish& finish) {
  static constexpr const char* kNames[] = {"stop", "length", "abort", "error"};
  std::string text = kNames[size_t(finish.reason)];
  if (const auto* id = std::get_if<int32_t>(&finish.matched)) text += fmt::format(" token {}", *id);
  if (const auto* string = std::get_if<std::string>(&finish.matched)) text += " string " + *string;
  return text;
}

void add_bits(std::vector<uint32_t>& bits, const TokenText& token) {
  bits.push_back(std::bit_cast<uint32_t>(token.logprob));
  for (const TokenText& t : token.top) {
    bits.push_back(uint32_t(t.id));
    bits.push_back(std::bit_cast<uint32_t>(t.logprob));
  }
}

}  // namespace

void CollectingSink::on_event(ResponseEvent event) {
  std::lock_guard lock(mutex_);
  CHECK(!done_, "an event after the last one");
  if (const auto* accepted = std::get_if<Accepted>(&event)) {
    outcome_.prompt_ids = accepted->prompt_ids;
    outcome_.opens_reasoning = accepted->opens_reasoning;
  } else if (const auto* scored = std::get_if<PromptScored>(&event)) {
    for (const TokenText& t : scored->tokens) add_bits(outcome_.prompt_logprob_bits, t);
  } else if (const auto* delta = std::get_if<ChoiceDelta>(&event)) {
    Answer& answer = outcome_.answers.at(size_t(delta->index));
    CHECK(answer.finish.empty(), "choice {} goes on after its end", delta->index);
    for (const TokenText& t : delta->tokens) {
      answer.ids.push_back(t.id);
      add_bits(answer.logprob_bits, t);
    }
    tokens_ += delta->tokens.size();
    answer.text += delta->text;
    for (const float x : delta->embedding) answer.embedding_bits.push_back(std::bit_cast<uint32_t>(x));
    if (delta->finish) answer.finish = finish_text(*delta->finish);
  } else if (const auto* end = std::get_if<Done>(&event)) {
    outcome_.usage = end->usage;
    done_ = true;
  } else {
    outcome_.status = std::get<Failed>(event).status;
    done_ = true;
  }
  changed_.notify_all();
}

Outcome CollectingSink::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  return outcome_;
}

void CollectingSink::wait_for_tokens(size_t tokens) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ || tokens_ >= tokens; });
}

std::vector<Outcome> run_together(EngineApi& engine, const std::vector<GenerateRequest>& requests) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const GenerateRequest& r : requests) {
    sinks.push_back(std::make_shared<CollectingSink>(r.n));
    engine.submit(r, sinks.back());
  }
  std::vector<Outcome> outcomes;
  for (auto& sink : sinks) outcomes.push_back(sink->wait());
  return outcomes;
}

std::vector<Outcome> run_alone(EngineApi& engine, const std::vector<GenerateRequest>& requests) {
  std::vector<Outcome> outcomes;
  for (const GenerateRequest& r : requests) {
    auto sink = std::make_shared<CollectingSink>(r.n);
    engine.submit(r, sink);
    outcomes.push_back(sink->wait());
  }
  return outcomes;
}

}  // namespace gapless::testing
