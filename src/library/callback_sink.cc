#include "library/callback_sink.h"

#include "library/requests.h"

namespace gapless {
namespace {

using Public = v1::Engine;

Public::Token token_of(TokenText& t) {
  Public::Token out{.id = t.id, .bytes = std::move(t.bytes), .logprob = t.logprob, .top = {}};
  for (TokenText& other : t.top) out.top.push_back(token_of(other));
  return out;
}

Public::Finish finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return Public::Finish::kStop;
    case FinishReason::kLength:
      return Public::Finish::kLength;
    case FinishReason::kAbort:
    case FinishReason::kError:
      return Public::Finish::kBroken;
  }
  return Public::Finish::kBroken;
}

}  // namespace

void CallbackSink::on_event(ResponseEvent event) {
  std::visit([this](auto& e) { on(e); }, event);
}

void CallbackSink::on(ChoiceDelta& delta) {
  Public::Delta out{.choice = delta.index, .text = std::move(delta.text), .tokens = {}, .finish = {}};
  for (TokenText& token : delta.tokens) out.tokens.push_back(token_of(token));
  if (delta.finish) {
    out.finish = finish_of(delta.finish->reason);
    if (out.finish == Public::Finish::kBroken && !outcome_.failure)
      outcome_.failure = failure_of(delta.finish->status);
  }
  if (on_delta_) on_delta_(out);
}

void CallbackSink::on(Done& done) {
  outcome_.prompt_tokens = done.usage.prompt_tokens;
  outcome_.completion_tokens = done.usage.completion_tokens;
  outcome_.cached_tokens = done.usage.cached_tokens;
  if (on_end_) on_end_(outcome_);
}

void CallbackSink::on(Failed& failed) {
  outcome_.failure = failure_of(failed.status);
  if (on_end_) on_end_(outcome_);
}

}  // namespace gapless
