#include "server/common_fields.h"
#include "server/completion_format.h"
#include "server/generation_plan.h"
#include "server/grammar_fields.h"

namespace gapless {

using nlohmann::json;

namespace {

constexpr size_t kMaxPrompts = 1024;
constexpr int32_t kMaxAnswers = 1024;      // prompts x n of one request
constexpr int32_t kDefaultMaxTokens = 16;  // OpenAI's

bool is_list_of(const json& value, bool (*test)(const json&)) {
  if (!value.is_array()) return false;
  for (const json& item : value) {
    if (!test(item)) return false;
  }
  return true;
}

TextPrompt text_prompt(const std::string& text, bool add_special) {
  return {.text = text, .add_special = add_special, .parse_special = true};
}

// An empty list of ids is the empty prompt: BOS alone where the model has one, refused by the engine where
// not.
void add_ids(FieldReader& fields, const json& list, const std::string& name, int32_t vocab_size,
             bool add_special, std::vector<Prompt>& prompts) {
  if (list.empty()) {
    prompts.emplace_back(text_prompt("", add_special));
    return;
  }
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); i++) {
    Result<int64_t> id = integer_value(fmt::format("{}[{}]", name, i), list[i], 0, vocab_size - 1);
    if (!id.is_ok()) return fields.fail("prompt", id.status().message());
    ids.push_back(static_cast<int32_t>(*id));
  }
  prompts.emplace_back(std::move(ids));
}

void add_list(FieldReader& fields, const json& list, int32_t vocab_size, bool add_special,
              std::vector<Prompt>& prompts) {
  const bool texts = is_list_of(list, [](const json& v) { return v.is_string(); });
  const bool lists = is_list_of(list, [](const json& v) { return v.is_array(); });
  if (list.empty() || (!texts && !lists))
    return add_ids(fields, list, "prompt", vocab_size, add_special, prompts);
  if (list.size() > kMaxPrompts) {
    return fields.fail(
        "prompt", fmt::format("prompt has {} entries, at most {} are allowed", list.size(), kMaxPrompts));
  }
  for (size_t i = 0; i < list.size() && !fields.failed(); i++) {
    if (texts) {
      prompts.emplace_back(text_prompt(list[i].get_ref<const std::string&>(), add_special));
    } else {
      add_ids(fields, list[i], fmt::format("prompt[{}]", i), vocab_size, add_special, prompts);
    }
  }
}

std::vector<Prompt> read_prompts(FieldReader& fields, int32_t vocab_size) {
  std::vector<Prompt> prompts;
  bool add_special = true;
  fields.boolean("add_special_tokens", add_special);
  const json* value = fields.find("prompt");
  if (!value) {
    fields.fail("prompt",
                "prompt is missing: a string, a list of strings, token ids or a list of token id lists");
  } else if (value->is_string()) {
    prompts.emplace_back(text_prompt(value->get_ref<const std::string&>(), add_special));
  } else if (value->is_array()) {
    add_list(fields, *value, vocab_size, add_special, prompts);
  } else {
    fields.fail("prompt", "prompt must be a string or an array, got " + describe_json(*value));
  }
  return prompts;
}

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
  read_grammar(
      fields, [&](const std::string& field) { return body.raw(field); }, request);
  std::vector<Prompt> prompts = read_prompts(fields, model.vocab_size);
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
