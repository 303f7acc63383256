// The body of POST /generate: SGLang's names.
#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "server/common_fields.h"
#include "server/generation_plan.h"
#include "server/grammar_fields.h"
#include "server/native_format.h"
#include "server/prompt_field.h"

namespace gapless {

using nlohmann::json;

namespace {

constexpr int32_t kDefaultNewTokens = 128;  // SGLang's
constexpr int32_t kMaxTopLogprobs = 20;
constexpr size_t kMaxNameBytes = 128;

// To ignore one of these would be to answer a different question.
constexpr std::array kRefused = {
    "input_embeds", "image_data",        "audio_data",     "video_data",
    "lora_path",    "token_ids_logprob", "session_params", "custom_logit_processor"};
constexpr std::array kRefusedSampling = {"stop_regex", "custom_params"};

// A field at a place where nothing reads it, and where it belongs.
struct Misplaced {
  const char* name;
  const char* place;
};
constexpr Misplaced kOfSampling[] = {{"max_new_tokens", "sampling_params.max_new_tokens"},
                                     {"max_tokens", "sampling_params.max_new_tokens"},
                                     {"min_new_tokens", "sampling_params.min_new_tokens"},
                                     {"temperature", "sampling_params.temperature"},
                                     {"top_p", "sampling_params.top_p"},
                                     {"top_k", "sampling_params.top_k"},
                                     {"min_p", "sampling_params.min_p"},
                                     {"frequency_penalty", "sampling_params.frequency_penalty"},
                                     {"presence_penalty", "sampling_params.presence_penalty"},
                                     {"repetition_penalty", "sampling_params.repetition_penalty"},
                                     {"ignore_eos", "sampling_params.ignore_eos"},
                                     {"stop", "sampling_params.stop"},
                                     {"stop_token_ids", "sampling_params.stop_token_ids"},
                                     {"n", "sampling_params.n"},
                                     {"seed", "sampling_params.sampling_seed"},
                                     {"sampling_seed", "sampling_params.sampling_seed"}};
constexpr Misplaced kNotOfSampling[] = {{"max_tokens", "sampling_params.max_new_tokens"},
                                        {"min_tokens", "sampling_params.min_new_tokens"},
                                        {"seed", "sampling_params.sampling_seed"},
                                        {"stream", "stream, beside sampling_params"},
                                        {"return_logprob", "return_logprob, beside sampling_params"}};

void refuse_misplaced(FieldReader& fields, std::span<const Misplaced> names) {
  for (const Misplaced& field : names) {
    if (fields.find(field.name))
      fields.fail(field.name,
                  fmt::format("{} is not read here: {}", fields.name_of(field.name), field.place));
  }
}

void refuse_present(FieldReader& fields, std::span<const char* const> names, const char* why) {
  for (const char* name : names) {
    if (fields.find(name)) fields.unsupported(name, why);
  }
}

// list: whether the client wrote a list of prompts, of which there may be one.
std::vector<Prompt> read_native_prompts(FieldReader& fields, int32_t vocab_size, bool& list) {
  const json* text = fields.find("text");
  const json* ids = fields.find("input_ids");
  if ((text != nullptr) == (ids != nullptr)) {
    fields.fail("text", text ? "text and input_ids are both there: a request has one of them"
                             : "text or input_ids is missing: a string, token ids, or a list of them");
    return {};
  }
  list = text ? text->is_array() : ids->is_array() && !ids->empty() && ids->front().is_array();
  const auto is_text = [](const json& value) { return value.is_string(); };
  const bool texts =
      text && text->is_array() && !text->empty() && std::all_of(text->begin(), text->end(), is_text);
  if (text && !text->is_string() && !texts) {
    fields.fail("text", "text must be a string or a list of strings, got " + describe_json(*text));
    return {};
  }
  if (ids && (!ids->is_array() || (!ids->empty() && ids->front().is_string()))) {
    fields.fail("input_ids",
                "input_ids must be token ids or a list of token id lists, got " + describe_json(*ids));
    return {};
  }
  return read_prompts(fields, text ? "text" : "input_ids", kMaxPrompts, vocab_size);
}

// One object of sampling_params; `n` is of the whole request.
void read_params(FieldReader& fields, const json& object, const ModelFacts& model, int32_t& n,
                 GenerateRequest& request) {
  if (!object.is_object()) {
    return fields.fail("sampling_params", "sampling_params must be an object or a list of objects, got " +
                                              describe_json(object));
  }
  FieldReader params(object, "sampling_params");
  refuse_misplaced(params, kNotOfSampling);
  read_choice_fields(params, model, request);
  read_lengths(params, {"max_new_tokens"}, "min_new_tokens", /*min_max_tokens=*/0, request);
  read_seed(params, "sampling_seed", request);
  params.integer("n", 1, kMaxChoices, n);
  // A schema is sent as a text, so that the order of its properties is kept.
  read_grammar(
      params, [&](const std::string& field) { return object.at(field).dump(); }, request);
  refuse_present(params, kRefusedSampling, "it is not available in this version");
  params.boolean("no_stop_trim", request.include_stop);
  if (params.failed()) fields.fail(params.status());
}

void read_all_params(FieldReader& fields, const ModelFacts& model, int32_t& n,
                     std::vector<GenerateRequest>& requests) {
  const json* value = fields.find("sampling_params");
  if (!value || fields.failed()) return;
  if (!value->is_array()) {  // read once, for all
    GenerateRequest shared = requests.front();
    read_params(fields, *value, model, n, shared);
    for (GenerateRequest& request : requests) {
      shared.prompt = std::move(request.prompt);
      request = shared;
    }
    return;
  }
  if (value->size() != requests.size()) {
    return fields.fail("sampling_params", fmt::format("sampling_params has {} entries for {} prompts",
                                                      value->size(), requests.size()));
  }
  for (size_t i = 0; i < requests.size(); i++) {
    int32_t own = 1;
    read_params(fields, (*value)[i], model, own, requests[i]);
    if (i > 0 && own != n) {
      return fields.fail("sampling_params", "n must be the same in all entries of sampling_params");
    }
    n = own;
  }
}

void read_names(FieldReader& fields, size_t prompts, std::vector<std::string>& names) {
  const json* value = fields.find("rid");
  if (!value || fields.failed()) return;
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() != prompts)
    return fields.fail("rid", fmt::format("rid has {} entries for {} prompts", list.size(), prompts));
  for (const json& name : list) {
    const auto* text = name.get_ptr<const std::string*>();
    if (!text || text->empty() || text->size() > kMaxNameBytes) {
      return fields.fail(
          "rid", fmt::format("rid must be a string of 1 to {} bytes, or a list of such", kMaxNameBytes));
    }
    names.push_back(*text);
  }
}

NativeOptions read_options(FieldReader& fields, bool list) {
  NativeOptions options{.list = list};
  fields.boolean("return_logprob", options.logprobs);
  fields.boolean("return_text_in_logprobs", options.token_text);
  fields.integer("logprob_start_len", -1, std::numeric_limits<int32_t>::max(), options.prompt_logprobs_from);
  fields.integer("top_logprobs_num", 0, kMaxTopLogprobs, options.top_logprobs);
  return options;
}

void ask_for_logprobs(const NativeOptions& options, GenerateRequest& request) {
  if (!options.logprobs) return;
  request.sampling.top_logprobs = options.top_logprobs;
  request.want_prompt_logprobs = options.prompt_logprobs_from >= 0;
}

}  // namespace

Result<GenerationPlan> parse_native_request(const JsonBody& body, const ModelFacts& model,
                                            const RequestLimits& /*limits*/) {
  FieldReader fields(body.root());
  GenerationPlan plan;
  fields.boolean("stream", plan.stream);
  refuse_present(fields, kRefused, "text is generated from text or token ids");
  refuse_misplaced(fields, kOfSampling);
  refuse_grammar_fields(fields, "the same field in sampling_params");
  bool hidden_states = false;
  fields.boolean("return_hidden_states", hidden_states);
  if (hidden_states) fields.unsupported("return_hidden_states", "POST /v1/embeddings has them");
  bool list = false;
  std::vector<Prompt> prompts = read_native_prompts(fields, model.vocab_size, list);
  RETURN_IF_ERROR(fields.status());

  for (Prompt& prompt : prompts) {
    plan.requests.emplace_back().prompt = std::move(prompt);
    plan.requests.back().max_tokens = kDefaultNewTokens;
  }
  read_all_params(fields, model, plan.n, plan.requests);
  limit_answers(fields, plan.requests.size(), plan.n, "n");
  plan.returned = plan.n;
  read_names(fields, plan.requests.size(), plan.names);
  const NativeOptions options = read_options(fields, list || plan.n > 1);
  RETURN_IF_ERROR(fields.status());
  for (GenerateRequest& request : plan.requests) {
    request.n = plan.n;
    ask_for_logprobs(options, request);
  }
  plan.prompt_field = fields.find("text") ? "text" : "input_ids";
  plan.format = std::make_unique<NativeFormat>(options);
  return plan;
}

}  // namespace gapless
