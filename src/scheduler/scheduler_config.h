// The scheduler's numbers, resolved at start. Names and defaults follow SGLang's flags of the same name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace gapless {

enum class SchedulePolicy : uint8_t { kLpm, kFcfs, kLof, kRandom, kDfsWeight };
Result<SchedulePolicy> parse_schedule_policy(const std::string& name);  // an error lists the known names

struct SchedulerConfig {
  int32_t max_running_requests = 64;
  int32_t max_queued_requests = 2048;  // beyond these and what could still start at once: kResourceExhausted
  int64_t max_total_tokens = 0;        // KV pool in tokens, a multiple of page_size
  int32_t page_size = 16;
  int32_t context_length = 0;          // prompt + output of one request
  int32_t chunked_prefill_size = 512;  // prompt tokens per step; -1: a prompt is never cut
  int32_t max_prefill_tokens = 16384;  // prompt tokens per step when prompts are not cut
  bool mixed_chunk = true;             // decode rows ride along with prefill chunks
  bool radix_cache = true;
  SchedulePolicy policy = SchedulePolicy::kLpm;
  double schedule_conservativeness = 1.0;  // scales the initial new_token_ratio (0.7)
  int32_t max_consecutive_prefill = 1;     // prefill-only batches in a row while decode rows wait
  uint64_t random_seed = 0;                // of policy `random`
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_ids;  // ascending

  int32_t max_total_pages() const { return int32_t(max_total_tokens / page_size); }
  int32_t max_pages_per_request() const { return (context_length + page_size - 1) / page_size; }
  // An ended request holds its slot until its last launched batch is done; slot 0 is dump.
  int32_t request_slots() const { return 2 * max_running_requests + 1; }
};

}  // namespace gapless
