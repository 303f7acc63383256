#include "engine/sizing.h"

#include <algorithm>

#include "scheduler/validate.h"

namespace gapless {
namespace {

constexpr int64_t kMiB = 1 << 20;

Status check_flags(const EngineOptions& o, const ModelConfig& model) {
  const SchedulerConfig& s = o.scheduler;
  if (s.page_size < 1 || s.page_size > 256)
    return Status::invalid("--page-size {}: must be 1 .. 256", s.page_size);
  if (s.max_running_requests < 1 || s.max_running_requests > 4096)
    return Status::invalid("--max-running-requests {}: must be 1 .. 4096", s.max_running_requests);
  if (s.max_total_tokens < 0 || s.max_total_tokens > (int64_t(1) << 30))
    return Status::invalid("--max-total-tokens {}: must be 0 (from --kv-mem) .. {}", s.max_total_tokens,
                           int64_t(1) << 30);
  if (o.context_length < 0 || o.context_length > model.context_length)
    return Status::invalid("--context-length {}: the model was made for at most {} tokens", o.context_length,
                           model.context_length);
  return {};
}

}  // namespace

Result<Sizing> resolve_sizing(const EngineOptions& options, const ModelConfig& model,
                              std::vector<int32_t> eos_ids, int64_t memory_limit) {
  RETURN_IF_ERROR(check_flags(options, model));
  Sizing out;
  SchedulerConfig& s = out.scheduler = options.scheduler;
  s.vocab_size = model.vocab_size;
  s.eos_ids = std::move(eos_ids);
  s.context_length = options.context_length ? options.context_length : model.context_length;

  const int64_t token_bytes = model.kv_bytes_per_token(options.kv_dtype);
  if (s.max_total_tokens == 0) {
    const int64_t bytes = options.kv_mem_bytes ? options.kv_mem_bytes : memory_limit / 4;
    // More than every running request at full context, twice over for cached prefixes, would never be used.
    int64_t useful = 2 * int64_t(s.max_running_requests) * s.context_length;
    if (model.max_kv_tokens > 0) useful = std::min(useful, model.max_kv_tokens);
    s.max_total_tokens = std::min(bytes / token_bytes, useful) / s.page_size * s.page_size;
    if (s.max_total_tokens < 1)
      return Status::invalid(
          "--kv-mem: {} bytes hold no page of {} tokens ({} bytes a token); give at least {} MiB", bytes,
          s.page_size, token_bytes, s.page_size * token_bytes / kMiB + 1);
  }
  ASSIGN_OR_RETURN(s, check_scheduler_config(s, out.notes));
  out.kv_bytes = s.max_total_tokens * token_bytes;
  if (out.kv_bytes > memory_limit)
    return Status::invalid(
        "the KV pool needs {} MiB ({} tokens), {} MiB of memory are allowed: lower --kv-mem or "
        "--max-total-tokens",
        out.kv_bytes / kMiB, s.max_total_tokens, memory_limit / kMiB);

  // A whole prompt may exceed max_prefill_tokens when it is the first of its step; decode rows come on top.
  const int32_t prefill_rows =
      s.chunked_prefill_size > 0 ? s.chunked_prefill_size : std::max(s.context_length, s.max_prefill_tokens);
  out.runner = {
      .limits = {.max_rows = prefill_rows + s.max_running_requests, .max_seqs = 2 * s.max_running_requests},
      .request_slots = s.request_slots(),
      .max_pages_per_request = s.max_pages_per_request(),
      .total_pages = s.max_total_pages(),
      .page_size = s.page_size,
      .kv_dtype = options.kv_dtype,
      .eos_ids = s.eos_ids};
  return out;
}

}  // namespace gapless
