#include "server/common_fields.h"
#include "server/completion_format.h"
#include "server/generation_plan.h"
#include "server/prompt_field.h"

namespace gapless {

namespace {

constexpr size_t kMaxPrompts = 1024;
constexpr int32_t kMaxAnswers = 1024;      // prompts x n of one request
constexpr int32_t kDefaultMaxTokens = 16;  // OpenAI's

void refuse_completion_only(FieldReader& fields, int32_t n) {
  std::string suffix;
  fields.string("suffix", suffix);
  if (!suffix.empty()) fields.unsupported("suffix", "text can be continued, not filled in");
  int32_t best_of = n;
  fields.integer("best_of", 1, kMaxChoices, best_of);
  if (best_of != n) {
    fields.unsupported("best_of",
                       fmt::format("only best_of equal to n is available (n is {}, best_of {})", n, best_of));
  }
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
  refuse_completion_only(fields, plan.n);
  std::vector<Prompt> prompts = read_prompts(fields, "prompt", kMaxPrompts, model.vocab_size);
  if (!fields.failed() && int64_t(prompts.size()) * plan.n > kMaxAnswers) {
    fields.fail(
        "n", fmt::format("{} prompts x n {} are more than {} answers", prompts.size(), plan.n, kMaxAnswers));
  }
  RETURN_IF_ERROR(fields.status());

  const bool logprobs = request.sampling.top_logprobs >= 0;
  request.n = plan.n;
  request.want_prompt_logprobs = request.want_prompt_text && logprobs;
  plan.id_prefix = "cmpl-";
  plan.format = std::make_unique<CompletionFormat>(request.want_prompt_text, logprobs);
  for (Prompt& prompt : prompts) {
    plan.requests.push_back(request);
    plan.requests.back().prompt = std::move(prompt);
  }
  return plan;
}

}  // namespace gapless
