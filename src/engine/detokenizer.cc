#include "engine/detokenizer.h"

#include "base/trace_names.h"

namespace gapless {

Detokenizer::Detokenizer(const TokenBytes& token_bytes, TraceRing& trace,
                         std::function<void(RequestId)> on_gone)
    : token_bytes_(token_bytes),
      trace_(trace),
      on_gone_(std::move(on_gone)),
      thread_("detokenizer", [this] { loop(); }) {}

void Detokenizer::close() {
  queue_.close();
  thread_.join();
}

void Detokenizer::refuse(RequestId id, std::shared_ptr<ResponseSink> sink, Status status) {
  Refusal refusal{id, std::move(sink), std::move(status)};
  if (!queue_.try_push(Message(refusal))) handle(std::move(refusal));  // closed: nobody else will answer
}

void Detokenizer::loop() {
  while (auto message = queue_.pop()) std::visit([this](auto& m) { handle(std::move(m)); }, *message);
  for (auto& [id, state] : open_)
    state.request.sink->on_event(Failed{Status(StatusCode::kUnavailable, "the server is shutting down")});
  open_.clear();
}

void Detokenizer::handle(OpenRequest request) {
  request.sink->on_event(std::move(request.accepted));
  const RequestId id = request.id;
  OpenState& state = open_[id];
  state.choices.resize(request.n);
  state.request = std::move(request);
}

void Detokenizer::handle(Refusal refusal) {
  refusal.sink->on_event(Failed{std::move(refusal.status)});
  on_gone_(refusal.id);
}

void Detokenizer::handle(std::vector<TokenDelta> deltas) {
  TraceSpan span(trace_, trace::kDeliver);
  int64_t tokens = 0;
  for (TokenDelta& delta : deltas) {
    auto it = open_.find(delta.id);
    CHECK(it != open_.end(), "tokens for request {}, which is not open", delta.id);
    OpenState& state = it->second;
    tokens += delta.token.has_value();
    handle_delta(state, std::move(delta));
    if (state.ended < state.request.n) continue;
    if (state.error.is_ok()) {
      state.request.sink->on_event(Done{state.usage});
    } else {
      state.request.sink->on_event(Failed{state.error});
    }
    const RequestId id = it->first;
    open_.erase(it);
    on_gone_(id);
  }
  span.set_args(int64_t(deltas.size()), tokens);
}

void Detokenizer::handle_delta(OpenState& state, TokenDelta delta) {
  Choice& choice = state.choices[delta.choice];
  CHECK(!choice.ended, "request {} choice {} goes on after its end", delta.id, delta.choice);
  // Of whichever choice comes first: they have the same prompt, and any of them may be computed first.
  if (!std::exchange(state.begun, true)) {
    state.usage.prompt_tokens = delta.prompt_tokens;
    state.usage.cached_tokens = delta.cached_tokens;
  }
  state.usage.completion_tokens += int32_t(delta.token.has_value());
  const bool skip_special = state.request.skip_special_tokens;
  if (!delta.prompt_logprobs.empty() && !std::exchange(state.prompt_scored, true)) {
    PromptScored scored;
    for (const OutputToken& t : delta.prompt_logprobs) scored.tokens.push_back(token_text(t, skip_special));
    state.request.sink->on_event(std::move(scored));
  }

  ChoiceDelta event{.index = delta.choice,
                    .text = advance_text(state, choice, delta),
                    .tokens = {},
                    .finish = {},
                    .cached_tokens = state.usage.cached_tokens};
  event.embedding = std::move(delta.embedding);
  if (delta.token) event.tokens.push_back(token_text(*delta.token, skip_special));
  if (delta.finish) {
    choice.ended = true;
    state.ended++;
    if (delta.finish->reason == FinishReason::kError && state.error.is_ok())
      state.error = delta.finish->status;
    event.finish = std::move(delta.finish);
  }
  if (event.finish || !event.tokens.empty()) state.request.sink->on_event(std::move(event));
}

std::string Detokenizer::advance_text(OpenState& state, Choice& choice, const TokenDelta& delta) const {
  if (delta.token) choice.held += token_bytes_.text_of(delta.token->id, state.request.skip_special_tokens);
  const int64_t newly_visible = delta.visible_bytes - choice.shown;
  CHECK(newly_visible >= 0 && newly_visible <= int64_t(choice.held.size()),
        "visible {} after {} shown, {} held", delta.visible_bytes, choice.shown, choice.held.size());
  std::string text;
  choice.utf8.feed(std::string_view(choice.held).substr(0, newly_visible), text);
  choice.held.erase(0, newly_visible);
  choice.shown = delta.visible_bytes;
  if (delta.finish) choice.utf8.finish(text);
  return text;
}

TokenText Detokenizer::token_text(const OutputToken& token, bool skip_special) const {
  TokenText out{
      .id = token.id, .bytes = std::string(token_bytes_.of(token.id)), .logprob = token.logprob, .top = {}};
  out.text_begin = out.bytes.size() - token_bytes_.text_of(token.id, skip_special).size();
  for (const TokenLogprob& t : token.top)
    out.top.push_back(
        {.id = t.id, .bytes = std::string(token_bytes_.of(t.id)), .logprob = t.logprob, .top = {}});
  return out;
}

}  // namespace gapless
