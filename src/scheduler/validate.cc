#include "scheduler/validate.h"

#include <algorithm>

namespace gapless {

namespace {

Status too_long(std::string message, const char* param) {
  return Status(StatusCode::kInvalidArgument, std::move(message))
      .with_param(param)
      .with_error_code("context_length_exceeded");
}

Status check_lengths(const SchedulerConfig& config, int64_t prompt, int64_t max_tokens) {
  if (prompt + max_tokens > config.context_length) {
    const bool prompt_alone = prompt + std::min<int64_t>(max_tokens, 1) > config.context_length;
    return too_long(fmt::format("prompt {} + max_tokens {} = {} tokens > context length {}", prompt,
                                max_tokens, prompt + max_tokens, config.context_length),
                    prompt_alone ? "prompt" : "max_tokens");
  }
  // Whole pages; the KV of the last output token is never needed.
  const int64_t positions = prompt + std::max<int64_t>(max_tokens, 1) - 1;
  const int64_t page = config.page_size, pages = (positions + page - 1) / page;
  if (pages > config.max_total_pages()) {
    return too_long(
        fmt::format(
            "prompt {} + max_tokens {} need {} tokens of KV cache, the pool has {} (--max-total-tokens, "
            "--kv-mem)",
            prompt, max_tokens, pages * page, config.max_total_pages() * page),
        "max_tokens");
  }
  return {};
}

}  // namespace

Status validate(const SchedulerConfig& config, const Request& request) {
  const SamplingParams& params = request.params;
  if (request.prompt_ids.empty()) return Status::invalid("the prompt has no tokens").with_param("prompt");
  for (int32_t id : request.prompt_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return Status::invalid("token id {} is outside the vocabulary, 0 to {}", id, config.vocab_size - 1)
          .with_param("prompt");
    }
  }
  if (request.n < 1) return Status::invalid("n is {}, must be at least 1", request.n).with_param("n");
  if (params.max_tokens < 0) {
    return Status::invalid("max_tokens is {}, must be at least 0", params.max_tokens)
        .with_param("max_tokens");
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    return Status::invalid("min_tokens is {}, must be 0 to max_tokens, {}", params.min_tokens,
                           params.max_tokens)
        .with_param("min_tokens");
  }
  if (std::ranges::any_of(request.stop, &std::string::empty)) {
    return Status::invalid("a stop string is empty").with_param("stop");
  }
  const auto prompt = int64_t(request.prompt_ids.size());
  if (request.prompt_logprob_begin < -1 || request.prompt_logprob_begin >= prompt) {
    return Status::invalid("prompt logprobs from token {} on, the prompt has {}",
                           request.prompt_logprob_begin, prompt)
        .with_param("logprobs");
  }
  if (request.embed_begin < -1 || request.embed_begin >= prompt ||
      (request.embed_begin >= 0 && params.max_tokens > 0)) {
    return Status::invalid("an embedding from position {} on, the prompt has {} tokens, max_tokens is {}",
                           request.embed_begin, prompt, params.max_tokens);
  }
  return check_lengths(config, prompt, params.max_tokens);
}

int32_t max_output_tokens(const SchedulerConfig& config, int32_t prompt_tokens) {
  const int64_t pool = int64_t(config.max_total_pages()) * config.page_size + 1;
  return int32_t(std::min<int64_t>(config.context_length, pool) - prompt_tokens);
}

Result<SchedulerConfig> check_scheduler_config(SchedulerConfig config, std::vector<std::string>& notes) {
  if (config.max_running_requests < 1) {
    return Status::invalid("--max-running-requests is {}, must be at least 1", config.max_running_requests);
  }
  if (config.max_queued_requests < 0) {
    return Status::invalid("--max-queued-requests is {}, must be at least 0", config.max_queued_requests);
  }
  if (config.page_size < 1) return Status::invalid("--page-size is {}, must be at least 1", config.page_size);
  if (config.context_length < 2) {
    return Status::invalid("--context-length is {}, must be at least 2", config.context_length);
  }
  if (config.vocab_size < 1) return Status::invalid("the vocabulary is empty");
  if (config.max_total_tokens < config.page_size) {
    return Status::invalid(
        "the KV pool has {} tokens, less than one page of {} (--max-total-tokens, --kv-mem, --page-size)",
        config.max_total_tokens, config.page_size);
  }
  if (config.max_total_tokens % config.page_size != 0) {
    const int64_t rounded = config.max_total_tokens / config.page_size * config.page_size;
    notes.push_back(fmt::format("KV pool of {} tokens rounded down to {}, whole pages of {}.",
                                config.max_total_tokens, rounded, config.page_size));
    config.max_total_tokens = rounded;
  }
  if (config.chunked_prefill_size == 0 || config.chunked_prefill_size < -1) {
    return Status::invalid("--chunked-prefill-size is {}, must be at least 1, or -1 for whole prompts",
                           config.chunked_prefill_size);
  }
  if (config.max_prefill_tokens < 1) {
    return Status::invalid("--max-prefill-tokens is {}, must be at least 1", config.max_prefill_tokens);
  }
  if (config.chunked_prefill_size > config.max_prefill_tokens) {
    notes.push_back(fmt::format(
        "--chunked-prefill-size {} lowered to {}: no step computes more than --max-prefill-tokens.",
        config.chunked_prefill_size, config.max_prefill_tokens));
    config.chunked_prefill_size = config.max_prefill_tokens;
  }
  if (config.max_consecutive_prefill < 1) {
    return Status::invalid("--max-consecutive-prefill is {}, must be at least 1",
                           config.max_consecutive_prefill);
  }
  if (!(config.schedule_conservativeness > 0)) {
    return Status::invalid("--schedule-conservativeness is {}, must be above 0",
                           config.schedule_conservativeness);
  }
  if (config.max_total_tokens < config.context_length) {
    notes.push_back(
        fmt::format("One request can use {} tokens, less than the context of {}: the KV pool is smaller.",
                    config.max_total_tokens, config.context_length));
  }
  std::ranges::sort(config.eos_ids);
  return config;
}

Result<SchedulePolicy> parse_schedule_policy(const std::string& name) {
  if (name == "lpm") return SchedulePolicy::kLpm;
  if (name == "fcfs") return SchedulePolicy::kFcfs;
  if (name == "lof") return SchedulePolicy::kLof;
  if (name == "random") return SchedulePolicy::kRandom;
  if (name == "dfs-weight") return SchedulePolicy::kDfsWeight;
  return Status::invalid("unknown --schedule-policy '{}'; known: lpm, fcfs, lof, random, dfs-weight", name);
}

}  // namespace gapless
