#include "server/generation_response.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "server/answer_json.h"
#include "server/api_error.h"
#include "server/best_of.h"
#include "server/later_response.h"

namespace gapless {

namespace {

// A body up to this size is parsed at once (about a millisecond); a larger one would hold up every other
// connection.
constexpr size_t kInlineParseBytes = 64 << 10;
// The same for an answer: tokens and alternatives whose logprobs are written, 100 bytes each or so, and the
// numbers of embeddings.
constexpr size_t kInlineFormatTokens = 10'000;

const char* reason_name(const std::optional<Finish>& finish) {
  if (!finish) return "none";
  constexpr const char* kNames[] = {"stop", "length", "abort", "error"};
  return kNames[static_cast<int>(finish->reason)];
}

}  // namespace

GenerationResponse::GenerationResponse(std::shared_ptr<Serving> serving, PlanParser parser,
                                       HttpRequest request)
    : serving_(std::move(serving)), parser_(std::move(parser)), request_(std::move(request)) {}

void GenerationResponse::start(std::function<void()> wake) {
  wake_ = std::move(wake);
  if (request_.body.size() <= kInlineParseBytes) return parse();
  auto job = [self = shared_from_this()] {
    self->parse();
    self->wake_();
  };
  if (!serving_->engine.run_on_text_pool(std::move(job))) {
    plan_ = Result<GenerationPlan>(
        Status(StatusCode::kUnavailable, "too many requests are being read, try again"));
  }
}

void GenerationResponse::parse() {
  auto parsed = [this]() -> Result<GenerationPlan> {
    ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(request_.body)));
    return parser_(body, serving_->engine.model(), serving_->limits);
  }();
  std::lock_guard lock(pool_mutex_);
  plan_ = std::move(parsed);
}

PendingResponse::Part GenerationResponse::take() {
  if (stage_ == Stage::kEnded) return {};
  if (stage_ == Stage::kParsing) {
    if (!broken_.is_ok()) return refuse(broken_);
    std::lock_guard lock(pool_mutex_);
    if (!plan_) return {};
    if (!plan_->is_ok()) return refuse(plan_->status());
    stage_ = Stage::kWaiting;
    submit();
  }
  if (stage_ == Stage::kFormatting) return broken_.is_ok() ? whole_part() : refuse(broken_);
  if (broken_.is_ok())
    receive();  // after an end by error nothing counts, not even the end that was asked for
  if (stage_ == Stage::kStreaming) return stream_part();
  if (!broken_.is_ok()) return refuse(broken_);
  if (all_failed()) return refuse(choices_.front().finish->status);
  if (!plan_->value().stream) {
    if (!all_ended()) return {};
    choices_ = likeliest(std::move(choices_), plan_->value().n, plan_->value().returned);
    return whole_part();
  }
  return all_accepted() && (!pending_.empty() || all_ended()) ? begin_stream() : Part{};
}

PendingResponse::Part GenerationResponse::keepalive() {
  if (stage_ == Stage::kWaiting && plan_->value().stream && all_accepted()) {
    Part part = begin_stream();
    part.data.insert(0, plan_->value().format->keepalive());
    return part;
  }
  if (stage_ != Stage::kStreaming) return {};
  return {.head = {}, .data = std::string(plan_->value().format->keepalive()), .end = false, .reason = {}};
}

PendingResponse::Part GenerationResponse::begin_stream() {
  stage_ = Stage::kStreaming;
  Part part = stream_part();
  part.head = event_stream_response();
  return part;
}

void GenerationResponse::submit() {
  GenerationPlan& plan = plan_->value();
  const ModelFacts& model = serving_->engine.model();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  header_ = {plan.id_prefix + request_.unique, std::chrono::duration_cast<std::chrono::seconds>(now).count(),
             model.id, serving_->fingerprint, request_.id};
  prompts_.resize(plan.requests.size());
  choices_.resize(prompts_.size() * plan.n);
  for (size_t i = 0; i < choices_.size(); i++) {
    choices_[i].index = static_cast<int32_t>(i);
    choices_[i].prompt = &prompts_[i / plan.n];
  }
  inbox_ = std::make_shared<EventInbox>(int32_t(prompts_.size()), plan.n, request_.received,
                                        std::shared_ptr<ServerMetrics>(serving_, &serving_->metrics), wake_);
  for (size_t i = 0; i < prompts_.size(); i++) {
    PromptState& prompt = prompts_[i];
    const bool only = prompts_.size() == 1;
    prompt.name = only ? header_.id : fmt::format("{}-{}", header_.id, i);
    if (!plan.names.empty()) prompt.name = plan.names[i];
    plan.requests[i].rid = prompt.name;
    prompt.id = serving_->engine.submit(std::move(plan.requests[i]), inbox_->sink(int32_t(i)));
    serving_->open_requests.emplace(prompt.name, prompt.id);
  }
}

void GenerationResponse::end_prompt(PromptState& prompt) {
  prompt.ended = true;
  serving_->open_requests.erase({prompt.name, prompt.id});
}

void GenerationResponse::receive() {
  std::vector<EventInbox::PromptEvents> events = inbox_->take();
  for (size_t i = 0; i < events.size(); i++) receive_prompt(i, std::move(events[i]));
}

void GenerationResponse::receive_prompt(size_t index, EventInbox::PromptEvents events) {
  PromptState& prompt = prompts_[index];
  if (events.accepted) prompt.accepted = std::move(events.accepted);
  if (events.scored) prompt.scored = std::move(*events.scored);
  const int32_t n = plan_->value().n;
  for (ChoiceDelta& delta : events.deltas) {
    auto& choice = choices_[index * n + delta.index];
    prompt.usage.cached_tokens = delta.cached_tokens;
    receive_delta(choice, std::move(delta));
  }
  if (events.done) {
    end_prompt(prompt);
    prompt.usage = events.done->usage;
    fail_open_choices(index,
                      Status::internal("the engine ended the request without a finish for every choice"));
  } else if (events.failed) {
    end_prompt(prompt);
    if (!prompt.accepted) {
      if (broken_.is_ok())
        broken_ = in_field(events.failed->status);  // one prompt that is refused refuses the request
      return;
    }
    prompt.usage = seen_usage(index);
    fail_open_choices(index, events.failed->status);
  }
}

// The engine calls every prompt that.
Status GenerationResponse::in_field(const Status& status) const {
  if (status.param() != "prompt") return status;
  return Status(status).with_param(plan_->value().prompt_field);
}

void GenerationResponse::receive_delta(Choice& choice, ChoiceDelta delta) {
  // Not asked for from here (that would have ended the response): to the client it is a failure of the
  // server.
  const bool aborted = delta.finish && delta.finish->reason == FinishReason::kAbort;
  if (aborted && !plan_->value().format->shows_aborts()) {
    delta.finish = Finish{
        FinishReason::kError, {}, Status(StatusCode::kUnavailable, "the request was aborted by the server")};
  }
  if (delta.finish && delta.finish->reason == FinishReason::kError) {
    const Status status = std::exchange(delta.finish, std::nullopt)->status;
    receive_delta(choice, std::move(delta));
    return fail_choice(choice, status);
  }
  choice.n_tokens += static_cast<int64_t>(delta.tokens.size());
  for (const TokenText& token : delta.tokens) choice.logprob_sum += token.logprob;
  if (delta.finish) choice.finish = delta.finish;
  if (plan_->value().stream) return stream_delta(choice, delta);
  choice.text += delta.text;
  choice.embedding = std::move(delta.embedding);
  if (!plan_->value().format->wants_tokens()) return;
  std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.tokens));
}

void GenerationResponse::stream_delta(Choice& choice, const ChoiceDelta& delta) {
  plan_->value().format->stream_delta(header_, choice, delta, chunk_usage(), pending_);
}

void GenerationResponse::fail_open_choices(size_t prompt, const Status& status) {
  const int32_t n = plan_->value().n;
  for (int32_t i = 0; i < n; i++) {
    Choice& choice = choices_[prompt * n + i];
    if (!choice.finish) fail_choice(choice, status);
  }
}

// Alone, a failed answer is a failed request. Among others it is one choice with finish_reason "error", so
// that the others are not lost.
void GenerationResponse::fail_choice(Choice& choice, const Status& status) {
  choice.finish = Finish{FinishReason::kError, {}, status};
  if (choices_.size() == 1 || plan_->value().format->whole_or_nothing()) {
    if (broken_.is_ok()) broken_ = status;
    return;
  }
  if (plan_->value().stream)
    stream_delta(choice, {.index = 0, .text = {}, .tokens = {}, .finish = choice.finish});
}

PendingResponse::Part GenerationResponse::refuse(const Status& status) {
  abort_running();
  stage_ = Stage::kEnded;
  refused_ = true;
  return {.head = error_response(status, request_.id), .data = {}, .end = true, .reason = {}};
}

PendingResponse::Part GenerationResponse::stream_part() {
  Part part;
  if (!broken_.is_ok()) {
    plan_->value().format->stream_error(header_, choices_, broken_, pending_);
    part.reason = error_reason(broken_);
    abort_running();
    part.end = true;
  } else if (all_ended()) {
    const auto kind = plan_->value().include_usage ? ChunkUsage::Kind::kFilled : ChunkUsage::Kind::kAbsent;
    plan_->value().format->end_stream(header_, choices_, {kind, total_usage()}, pending_);
    part.end = true;
  }
  if (part.end) end();
  part.data = std::exchange(pending_, {});
  return part;
}

PendingResponse::Part GenerationResponse::whole_part() {
  if (stage_ == Stage::kWaiting && is_large()) {
    stage_ = Stage::kFormatting;
    format_on_pool();
    return {};
  }
  Part part;
  part.head.emplace();
  if (stage_ == Stage::kFormatting) {
    std::lock_guard lock(pool_mutex_);
    if (!body_) return {};
    part.head->body = *std::move(body_);
  } else {
    part.head->body = plan_->value().format->whole(header_, choices_, total_usage());
  }
  part.end = true;
  end();
  return part;
}

bool GenerationResponse::is_large() const {
  size_t tokens = 0;
  for (const Choice& choice : choices_) {
    tokens += choice.embedding.size();
    for (const auto* list : {&choice.tokens, &choice.prompt->scored.tokens}) {
      for (const TokenText& token : *list) tokens += 1 + token.top.size();
    }
  }
  return tokens > kInlineFormatTokens;
}

// While it runs nobody else touches the choices: every prompt has ended.
void GenerationResponse::format_on_pool() {
  auto job = [self = shared_from_this(), usage = total_usage()] {
    std::string body = self->plan_->value().format->whole(self->header_, self->choices_, usage);
    {
      std::lock_guard lock(self->pool_mutex_);
      self->body_ = std::move(body);
    }
    self->wake_();
  };
  if (!serving_->engine.run_on_text_pool(job)) job();
}

void GenerationResponse::end() {
  stage_ = Stage::kEnded;
  const EventInbox::Times times = inbox_->times();
  const auto last = times.last_token.value_or(std::chrono::steady_clock::now());
  const Usage usage = total_usage();
  ServerMetrics& metrics = serving_->metrics;
  metrics.request_latency.observe(std::chrono::duration<double>(last - request_.received).count());
  metrics.request_prompt_tokens.observe(double(usage.prompt_tokens));
  metrics.request_generation_tokens.observe(double(usage.completion_tokens));
}

void GenerationResponse::cancel(const Status& why) {
  if (stage_ == Stage::kEnded) return;
  abort_running();
  broken_ = why;
}

void GenerationResponse::abort_running() {
  for (size_t i = 0; i < prompts_.size(); i++) {
    if (prompts_[i].ended) continue;
    end_prompt(prompts_[i]);
    prompts_[i].usage = seen_usage(i);
    serving_->engine.abort(prompts_[i].id);
  }
}

bool GenerationResponse::backlog_exceeded() const {
  return stage_ == Stage::kStreaming && inbox_->backlog_bytes() > serving_->max_stream_backlog_bytes;
}

bool GenerationResponse::all_accepted() const {
  return std::all_of(prompts_.begin(), prompts_.end(),
                     [](const PromptState& p) { return p.accepted.has_value(); });
}

bool GenerationResponse::all_ended() const {
  return std::all_of(prompts_.begin(), prompts_.end(), [](const PromptState& p) { return p.ended; });
}

bool GenerationResponse::all_failed() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& c) { return c.finish && c.finish->reason == FinishReason::kError; });
}

Usage GenerationResponse::seen_usage(size_t prompt) const {
  Usage usage;
  if (!prompts_[prompt].accepted) return usage;
  usage.prompt_tokens = static_cast<int32_t>(prompts_[prompt].accepted->prompt_ids.size());
  usage.cached_tokens = prompts_[prompt].usage.cached_tokens;
  const size_t n = plan_->value().n;
  for (size_t i = 0; i < n; i++) usage.completion_tokens += int32_t(choices_[prompt * n + i].n_tokens);
  return usage;
}

Usage GenerationResponse::total_usage() const {
  Usage total;
  for (const PromptState& prompt : prompts_) {
    total.prompt_tokens += prompt.usage.prompt_tokens;
    total.completion_tokens += prompt.usage.completion_tokens;
    total.cached_tokens += prompt.usage.cached_tokens;
  }
  return total;
}

ChunkUsage GenerationResponse::chunk_usage() const {
  const GenerationPlan& plan = plan_->value();
  if (plan.continuous_usage) {
    ChunkUsage usage{ChunkUsage::Kind::kFilled, {}};
    for (size_t i = 0; i < prompts_.size(); i++) {
      const Usage seen = seen_usage(i);
      usage.usage.prompt_tokens += seen.prompt_tokens;
      usage.usage.completion_tokens += seen.completion_tokens;
    }
    return usage;
  }
  return {plan.include_usage ? ChunkUsage::Kind::kNull : ChunkUsage::Kind::kAbsent, {}};
}

std::string GenerationResponse::log_fields() const {
  if (!inbox_) return {};
  const Usage usage = total_usage();
  const EventInbox::Times times = inbox_->times();
  std::string out = fmt::format("prompt={} cached={} generated={}", usage.prompt_tokens, usage.cached_tokens,
                                usage.completion_tokens);
  if (times.first_token) {
    const std::chrono::duration<double> ttft = *times.first_token - request_.received;
    const std::chrono::duration<double> decode = *times.last_token - *times.first_token;
    out += fmt::format(" ttft={:.0f}ms", 1e3 * ttft.count());
    if (decode.count() > 5e-3)  // tokens that came in one piece have no rate
      out += fmt::format(" {:.1f}tok/s", (usage.completion_tokens - 1) / decode.count());
  }
  if (refused_) return out;  // the reason says why
  const char* finish = broken_.is_ok()                            ? reason_name(choices_.front().finish)
                       : broken_.code() == StatusCode::kCancelled ? "abort"
                                                                  : "error";
  return out + fmt::format(" finish={}", finish);
}

}  // namespace gapless
