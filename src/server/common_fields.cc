#include "server/common_fields.h"

#include <algorithm>
#include <limits>

#include "server/json_writer.h"

namespace gapless {

using nlohmann::json;

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxCacheSaltBytes = 256;

void read_stream(FieldReader& fields, GenerationPlan& plan) {
  fields.boolean("stream", plan.stream);
  const json* options = fields.find("stream_options");
  if (!options || fields.failed()) return;
  if (!options->is_object()) {
    return fields.fail("stream_options", "stream_options must be an object, got " + describe_json(*options));
  }
  if (!plan.stream)
    return fields.fail("stream_options", "stream_options is allowed only with \"stream\": true");
  FieldReader inner(*options, "stream_options");
  inner.boolean("include_usage", plan.include_usage);
  inner.boolean("continuous_usage_stats", plan.continuous_usage);
  if (inner.failed()) fields.fail("stream_options", inner.status().message());
}

// Fields whose effect a client relies on: to ignore one would be to answer a different question.
void refuse_unsupported(FieldReader& fields) {
  for (const char* field : {"prompt_logprobs", "prompt_embeds"}) {
    if (fields.find(field)) fields.unsupported(field, "use echo with logprobs of /v1/completions");
  }
  bool beam_search = false;
  fields.boolean("use_beam_search", beam_search);
  if (beam_search) fields.unsupported("use_beam_search", "answers are sampled");
}

// "123" -> 123; digits only, so that two spellings of one id cannot both be given.
std::optional<int32_t> token_id_of(const std::string& key) {
  if (key.empty() || key.size() > 10 || (key[0] == '0' && key.size() > 1)) return std::nullopt;
  if (!std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  const int64_t id = std::stoll(key);
  return id <= kMaxInt32 ? std::optional<int32_t>(static_cast<int32_t>(id)) : std::nullopt;
}

void read_logit_bias(FieldReader& fields, int32_t vocab_size, std::vector<std::pair<int32_t, float>>& bias) {
  const json* value = fields.find("logit_bias");
  if (!value || fields.failed()) return;
  if (!value->is_object()) {
    return fields.fail("logit_bias",
                       "logit_bias must be an object of token id to bias, got " + describe_json(*value));
  }
  for (const auto& [key, item] : value->items()) {
    const std::optional<int32_t> id = token_id_of(key);
    if (!id || *id >= vocab_size) {
      return fields.fail("logit_bias",
                         fmt::format("logit_bias keys must be token ids between 0 and {}, got \"{}\"",
                                     vocab_size - 1, printable(key, 30)));
    }
    if (!item.is_number() || !(item.get<double>() >= -100) || !(item.get<double>() <= 100)) {
      return fields.fail("logit_bias",
                         fmt::format("logit_bias values must be numbers between -100 and 100, got {} for {}",
                                     describe_json(item), *id));
    }
    bias.emplace_back(*id, item.get<float>());
  }
  std::sort(bias.begin(), bias.end());
}

}  // namespace

void read_model(FieldReader& fields, const ModelFacts& model, bool strict) {
  std::string name = model.id;
  fields.string("model", name);
  if (fields.failed() || !strict || name == model.id) return;
  fields.fail(
      Status(StatusCode::kNotFound, fmt::format("the model '{}' does not exist here; this server serves '{}'",
                                                printable(name), model.id))
          .with_param("model")
          .with_error_code("model_not_found"));
}

void read_cache_salt(FieldReader& fields, GenerateRequest& request) {
  fields.string("cache_salt", request.cache_salt);
  // Kept as long as a page that was computed under it is cached.
  if (request.cache_salt.size() > kMaxCacheSaltBytes)
    fields.fail("cache_salt", fmt::format("cache_salt has {} bytes, at most {} are allowed",
                                          request.cache_salt.size(), kMaxCacheSaltBytes));
}

void read_stop(FieldReader& fields, const char* field, std::vector<std::string>& stop) {
  const json* value = fields.find(field);
  if (!value || fields.failed()) return;
  const json list = value->is_string() ? json::array({*value}) : *value;
  if (!list.is_array()) {
    return fields.fail(field, fmt::format("{} must be a string or an array of strings, got {}", field,
                                          describe_json(*value)));
  }
  if (list.size() > kMaxStopStrings) {
    return fields.fail(
        field, fmt::format("{} has {} strings, at most {} are allowed", field, list.size(), kMaxStopStrings));
  }
  for (const json& item : list) {
    if (!item.is_string())
      return fields.fail(field, fmt::format("{} must hold strings, got {}", field, describe_json(item)));
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxStopStringBytes) {
      return fields.fail(field, fmt::format("a stop string must have between 1 and {} bytes, got {}",
                                            kMaxStopStringBytes, text.size()));
    }
    stop.push_back(text);
  }
}

void read_common_fields(FieldReader& fields, const ModelFacts& model, const RequestLimits& limits,
                        GenerationPlan& plan) {
  read_model(fields, model, limits.strict_model);
  fields.integer("n", 1, kMaxChoices, plan.n);
  plan.returned = plan.n;
  read_stream(fields, plan);
  fields.boolean("return_token_ids", plan.return_token_ids);
  refuse_unsupported(fields);
}

void read_choice_fields(FieldReader& fields, const ModelFacts& model, GenerateRequest& request) {
  SamplingParams& p = request.sampling;
  fields.number("temperature", {0, 2}, p.temperature);
  fields.number("top_p", {0, 1, true}, p.top_p);
  fields.integer("top_k", -1, kMaxInt32, p.top_k);
  p.top_k = std::max(p.top_k, 0);  // -1 is how other servers write "all"
  fields.number("min_p", {0, 1}, p.min_p);
  fields.number("frequency_penalty", {-2, 2}, p.frequency_penalty);
  fields.number("presence_penalty", {-2, 2}, p.presence_penalty);
  fields.number("repetition_penalty", {0, 2, true}, p.repetition_penalty);
  fields.boolean("ignore_eos", p.ignore_eos);
  fields.boolean("include_stop_str_in_output", request.include_stop);
  fields.boolean("skip_special_tokens", request.skip_special_tokens);
  fields.integers("stop_token_ids", 0, model.vocab_size - 1, 128, p.stop_token_ids);
  read_stop(fields, "stop", request.stop);
  read_logit_bias(fields, model.vocab_size, p.logit_bias);
}

void read_lengths(FieldReader& fields, std::initializer_list<const char*> max_names, const char* min_name,
                  int32_t min_max_tokens, GenerateRequest& request) {
  int32_t& min_tokens = request.sampling.min_tokens;
  for (const char* name : max_names) fields.integer(name, min_max_tokens, kMaxInt32, request.max_tokens);
  fields.integer(min_name, 0, kMaxInt32, min_tokens);
  if (request.max_tokens && min_tokens > *request.max_tokens) {
    fields.fail(min_name, fmt::format("{} {} is greater than {} {}", min_name, min_tokens, *max_names.begin(),
                                      *request.max_tokens));
  }
}

void read_seed(FieldReader& fields, const char* name, GenerateRequest& request) {
  std::optional<int64_t> seed;
  fields.integer(name, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), seed);
  if (seed) request.seed = static_cast<uint64_t>(*seed);
}

void read_sampling_fields(FieldReader& fields, const ModelFacts& model, int32_t min_max_tokens,
                          GenerateRequest& request) {
  read_choice_fields(fields, model, request);
  read_cache_salt(fields, request);
  read_seed(fields, "seed", request);
  // Of two names the newer one wins.
  read_lengths(fields, {"max_tokens", "max_completion_tokens"}, "min_tokens", min_max_tokens, request);
}

}  // namespace gapless
