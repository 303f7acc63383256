#include "engine/intake.h"

#include <algorithm>

#include "sampling/sampling_ranges.h"

namespace gapless {
namespace {

// Helper for std::visit with one lambda per alternative.
template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

// What each token of `text` stands for in it, front to back. A token that the text does not spell adds
// nothing: a BOS that the client did not write, or the space that some models begin every text with.
void align(std::vector<TokenText>& tokens, std::string_view text) {
  for (TokenText& token : tokens) {
    token.text_begin = text.starts_with(token.bytes)  ? 0
                       : token.bytes.starts_with(' ') ? 1
                                                      : std::string::npos;
    if (token.text_begin > token.bytes.size() || !text.starts_with(token.text()))
      token.text_begin = token.bytes.size();
    text.remove_prefix(token.text().size());
  }
}

Status reasoning_is_unlimited() {
  return Status::invalid(
             "the chat template makes the answer begin with reasoning, which nothing can limit: a forced "
             "call or a "
             "limited answer needs a template that can go without (for many, chat_template_kwargs "
             "{{\"enable_thinking\": false}})")
      .with_param("chat_template_kwargs");
}

}  // namespace

Intake::Intake(const Tokenizer& tokenizer, const ChatTemplate* chat_template, const GrammarBackend& grammars,
               const SchedulerConfig& config)
    : tokenizer_(tokenizer), chat_template_(chat_template), grammars_(grammars), config_(config) {}

Result<Intake::Admitted> Intake::admit(RequestId id, const GenerateRequest& request,
                                       uint64_t random_seed) const {
  RETURN_IF_ERROR(check_sampling(request.sampling));
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, prompt_ids(request.prompt));
  ASSIGN_OR_RETURN(const int32_t max_tokens, output_limit(int32_t(ids.size()), request.max_tokens));

  auto out = std::make_unique<Request>();
  out->id = id;
  out->params = request.sampling;
  out->params.max_tokens = max_tokens;
  out->params.seed = request.seed.value_or(random_seed);
  out->n = request.n;
  out->stop = request.stop;
  out->include_stop = request.include_stop;
  out->skip_special_tokens = request.skip_special_tokens;
  out->prompt_logprob_begin = request.want_prompt_logprobs ? 0 : -1;
  if (request.embedding)
    out->embed_begin = *request.embedding == Pooling::kLast ? int32_t(ids.size()) - 1 : 0;
  out->cache_namespace = request.cache_salt;
  out->rid = request.rid;
  out->arrival = Clock::now();
  Accepted accepted = describe(request, ids);
  if (request.grammar && accepted.opens_reasoning) return reasoning_is_unlimited();
  out->prompt_ids = std::move(ids);
  RETURN_IF_ERROR(validate(config_, *out));
  // Last: it costs the most.
  ASSIGN_OR_RETURN(out->grammar, compile_grammar(request));
  return Admitted{std::move(out), std::move(accepted)};
}

Result<std::vector<int32_t>> Intake::prompt_ids(const Prompt& prompt) const {
  ASSIGN_OR_RETURN(
      std::vector<int32_t> ids,
      std::visit(Overload{[&](const TextPrompt& p) {
                            return tokenizer_.encode(
                                p.text, {.add_special = p.add_special, .parse_special = p.parse_special});
                          },
                          [&](const std::vector<int32_t>& p) { return Result<std::vector<int32_t>>(p); },
                          [&](const ChatPrompt& p) -> Result<std::vector<int32_t>> {
                            ASSIGN_OR_RETURN(RenderedChat chat, render(p));
                            return std::move(chat.ids);
                          }},
                 prompt));
  if (ids.empty())
    return Status::invalid("the prompt is empty, and this model has no beginning-of-text token to start from")
        .with_param("prompt");
  RETURN_IF_ERROR(check_token_ids(ids, "prompt"));
  return ids;
}

Result<RenderedChat> Intake::render(const ChatPrompt& chat) const {
  if (!chat_template_) return no_chat_template();
  ASSIGN_OR_RETURN(MarkedText text,
                   chat_template_->render({.messages = chat.messages,
                                           .tools = chat.tools,
                                           .template_kwargs = chat.template_kwargs,
                                           .add_generation_prompt = chat.add_generation_prompt,
                                           .continue_final_message = chat.continue_final_message}));
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_.encode_chat(text));
  return RenderedChat{std::move(text.text), std::move(ids)};
}

Status Intake::check_token_ids(const std::vector<int32_t>& ids, const char* field) const {
  for (int32_t id : ids)
    if (id < 0 || id >= config_.vocab_size)
      return Status::invalid("token id {} is outside the vocabulary of {} (0 .. {})", id, config_.vocab_size,
                             config_.vocab_size - 1)
          .with_param(field);
  return {};
}

Status Intake::check_sampling(const SamplingParams& params) const {
  RETURN_IF_ERROR(check_ranges(params));
  RETURN_IF_ERROR(check_token_ids(params.stop_token_ids, "stop_token_ids"));
  for (const auto& [id, bias] : params.logit_bias)
    if (id < 0 || id >= config_.vocab_size)
      return Status::invalid("logit_bias: token id {} is outside the vocabulary of {} (0 .. {})", id,
                             config_.vocab_size, config_.vocab_size - 1)
          .with_param("logit_bias");
  return {};
}

Result<std::shared_ptr<const Grammar>> Intake::compile_grammar(const GenerateRequest& request) const {
  if (!request.grammar) return std::shared_ptr<const Grammar>();
  Result<std::shared_ptr<const Grammar>> grammar = grammars_.compile(*request.grammar);
  if (grammar.is_ok()) return grammar;
  const Status status = grammar.status();
  return Status(status.code(), fmt::format("{}: {}", request.grammar_field, status.message()))
      .with_param(request.grammar_field);
}

Result<int32_t> Intake::output_limit(int32_t prompt_tokens, std::optional<int32_t> max_tokens) const {
  const int32_t limit = max_output_tokens(config_, prompt_tokens);
  const bool scoring = max_tokens == 0;  // the prompt only
  if (limit < 0 || (limit == 0 && !scoring))
    return Status::invalid(
               "the prompt has {} tokens, and prompt and answer together can have {} here (context length "
               "{}, KV pool {})",
               prompt_tokens, prompt_tokens + limit, config_.context_length, config_.max_total_tokens)
        .with_param("prompt")
        .with_error_code("context_length_exceeded");
  return std::min(max_tokens.value_or(limit), limit);
}

// The same for a prompt of ids, which was decoded: control tokens add nothing if they are skipped, and
// decoding may have dropped the first space.
void Intake::mark_text(Accepted& accepted, bool skip_special) const {
  bool at_start = true;
  for (TokenText& token : accepted.prompt_tokens) {
    token.text_begin = token.bytes.size() - tokenizer_.token_bytes().text_of(token.id, skip_special).size();
    if (token.text().empty()) continue;
    if (at_start && token.text().starts_with(' ') && !accepted.prompt_text.starts_with(' '))
      token.text_begin++;
    at_start = false;
  }
}

// Whether the prompt ends with <think>, which the answer goes on from; white space may follow it.
bool Intake::opens_reasoning(const std::vector<int32_t>& ids) const {
  constexpr size_t kEnough = 64;
  std::string end;
  for (auto id = ids.rbegin(); id != ids.rend() && end.size() < kEnough; ++id)
    end.insert(0, tokenizer_.token_bytes().of(*id));
  end.resize(end.find_last_not_of(" \n") + 1);
  return end.ends_with(kReasoningBegin);
}

Accepted Intake::describe(const GenerateRequest& request, const std::vector<int32_t>& ids) const {
  Accepted accepted;
  accepted.prompt_ids = ids;
  if (std::holds_alternative<ChatPrompt>(request.prompt) && chat_template_->marks_reasoning())
    accepted.opens_reasoning = opens_reasoning(ids);
  if (request.want_prompt_text || request.want_prompt_logprobs)
    for (int32_t id : ids)
      accepted.prompt_tokens.push_back(
          {.id = id, .bytes = std::string(tokenizer_.token_bytes().of(id)), .logprob = 0, .top = {}});
  if (!request.want_prompt_text) return accepted;
  if (const auto* text = std::get_if<TextPrompt>(&request.prompt)) {
    accepted.prompt_text = text->text;
    align(accepted.prompt_tokens, text->text);
  } else {
    accepted.prompt_text = tokenizer_.decode(ids, request.skip_special_tokens);
    mark_text(accepted, request.skip_special_tokens);
  }
  return accepted;
}

}  // namespace gapless
