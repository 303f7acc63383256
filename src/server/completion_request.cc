#include <algorithm>

#include "server/common_fields.h"
#include "server/completion_format.h"
#include "server/generation_plan.h"
#include "server/grammar_fields.h"
#include "server/prompt_field.h"

namespace gapless {

namespace {

constexpr int32_t kDefaultMaxTokens = 16;  // OpenAI's

void read_best_of(FieldReader& fields, GenerationPlan& plan) {
  int32_t best_of = plan.n;
  fields.integer("best_of", 1, kMaxChoices, best_of);
  if (best_of < plan.n)
    fields.fail("best_of", fmt::format("best_of is {}, it must be at least n, {}", best_of, plan.n));
  if (best_of > plan.n && plan.stream)
    fields.fail("best_of",
                fmt::format("best_of {} with n {} cannot be streamed: which answers are the best is "
                            "known at their end",
                            best_of, plan.n));
  plan.n = best_of;
}

void refuse_suffix(FieldReader& fields) {
  std::string suffix;
  fields.string("suffix", suffix);
  if (!suffix.empty()) fields.unsupported("suffix", "text can be continued, not filled in");
}

}  // namespace

Result<GenerationPlan> parse_completion_request(const JsonBody& body, const ModelFacts& model,
                                                const RequestLimits& limits) {
  FieldReader fields(body.root());
  GenerationPlan plan;
  read_common_fields(fields, model, limits, plan);
  GenerateRequest request;
  request.max_tokens = kDefaultMaxTokens;
  read_sampling_fields(fields, model, /*min_max_tokens=*/0, request);
  fields.boolean("echo", request.want_prompt_text);
  fields.integer("logprobs", 0, limits.max_completion_logprobs, request.sampling.top_logprobs);
  read_best_of(fields, plan);
  refuse_suffix(fields);
  read_grammar(
      fields, [&](const std::string& field) { return body.raw(field); }, request);
  std::vector<Prompt> prompts = read_prompts(fields, "prompt", kMaxPrompts, model.vocab_size);
  limit_answers(fields, prompts.size(), plan.n, plan.n > plan.returned ? "best_of" : "n");
  RETURN_IF_ERROR(fields.status());

  const bool logprobs = request.sampling.top_logprobs >= 0;
  if (plan.n > plan.returned)
    request.sampling.top_logprobs = std::max(request.sampling.top_logprobs, 0);  // what they are compared by
  request.n = plan.n;
  request.want_prompt_logprobs = request.want_prompt_text && logprobs;
  plan.id_prefix = "cmpl-";
  plan.format = std::make_unique<CompletionFormat>(request.want_prompt_text, logprobs, plan.return_token_ids);
  for (Prompt& prompt : prompts) {
    plan.requests.push_back(request);
    plan.requests.back().prompt = std::move(prompt);
  }
  return plan;
}

}  // namespace gapless
