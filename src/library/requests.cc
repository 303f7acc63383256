#include "library/requests.h"

#include <nlohmann/json.hpp>

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;
using Public = v1::Engine;

SamplingParams sampling_params(Public::Sampling s) {
  SamplingParams p;
  p.temperature = s.temperature;
  p.top_k = s.top_k;
  p.top_p = s.top_p;
  p.min_p = s.min_p;
  p.frequency_penalty = s.frequency_penalty;
  p.presence_penalty = s.presence_penalty;
  p.repetition_penalty = s.repetition_penalty;
  p.min_tokens = s.min_tokens;
  p.ignore_eos = s.ignore_eos;
  p.stop_token_ids = std::move(s.stop_token_ids);
  p.logit_bias = std::move(s.logit_bias);
  p.top_logprobs = s.top_logprobs;
  return p;
}

GrammarSpec grammar_spec(Public::Grammar grammar) {
  const auto kind = [&] {
    switch (grammar.kind) {
      case Public::Grammar::Kind::kRegex:
        return GrammarSpec::Kind::kRegex;
      case Public::Grammar::Kind::kLark:
        return GrammarSpec::Kind::kLark;
      default:
        return GrammarSpec::Kind::kJsonSchema;
    }
  }();
  return {kind, std::move(grammar.text)};
}

// Bytes that are not UTF-8 become U+FFFD, as everywhere else that text comes in.
ChatPrompt chat_prompt(const std::vector<Public::Message>& messages) {
  Json list = Json::array();
  for (const Public::Message& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  ChatPrompt prompt;
  prompt.messages = list.dump(-1, ' ', false, Json::error_handler_t::replace);
  return prompt;
}

}  // namespace

EngineOptions engine_options(const Public::Options& o) {
  EngineOptions out;
  out.model_path = o.model_path;
  out.device = o.device;
  out.chat_template = o.chat_template;
  out.threads = o.threads;
  out.context_length = o.context_length;
  out.kv_mem_bytes = o.kv_cache_bytes;
  out.disable_overlap_schedule = !o.overlap;
  out.scheduler = scheduler_defaults(o.device);
  if (o.max_running_requests != 0) out.scheduler.max_running_requests = o.max_running_requests;
  out.scheduler.max_queued_requests = o.max_queued_requests;
  return out;
}

GenerateRequest generate_request(Public::Request request) {
  GenerateRequest out;
  if (auto* text = std::get_if<std::string>(&request.prompt)) {
    out.prompt = TextPrompt{.text = std::move(*text)};
  } else if (auto* ids = std::get_if<std::vector<int32_t>>(&request.prompt)) {
    out.prompt = std::move(*ids);
  } else {
    out.prompt = chat_prompt(std::get<std::vector<Public::Message>>(request.prompt));
  }
  out.max_tokens = request.max_tokens;
  out.seed = request.sampling.seed;
  out.n = request.n;
  if (request.grammar) {
    out.grammar = grammar_spec(std::move(*request.grammar));
    out.grammar_field = "grammar";
  }
  out.stop = std::move(request.stop);
  out.cache_salt = std::move(request.cache_salt);
  out.sampling = sampling_params(std::move(request.sampling));
  return out;
}

Public::Failure failure_of(const Status& status) {
  using Kind = Public::FailureKind;
  const auto kind = [&] {
    switch (status.code()) {
      case StatusCode::kInvalidArgument:
      case StatusCode::kNotFound:
      case StatusCode::kPayloadTooLarge:
        return Kind::kInvalid;
      case StatusCode::kResourceExhausted:
        return Kind::kOverloaded;
      case StatusCode::kCancelled:
        return Kind::kAborted;
      case StatusCode::kUnavailable:
      case StatusCode::kDeadlineExceeded:
        return Kind::kUnavailable;
      default:
        return Kind::kInternal;
    }
  }();
  return {kind, status.message(), status.param()};
}

}  // namespace gapless
