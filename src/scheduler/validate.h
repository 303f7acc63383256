// Whether the scheduler can serve a request at all. Pure functions of the configuration: any thread, so that
// the answer is known before the request is queued (and before a stream's headers are sent).
#pragma once

#include "scheduler/request.h"
#include "scheduler/scheduler_config.h"

namespace gapless {

// The error names the field, what was seen and the limit. Too long for the context or the KV pool: error_code
// context_length_exceeded.
Status validate(const SchedulerConfig& config, const Request& request);

// The most output tokens a prompt of this length can have: what the context leaves, and what the KV pool can
// hold (the last token's KV is never written). 0 or less: none.
int32_t max_output_tokens(const SchedulerConfig& config, int32_t prompt_tokens);

// Resolves numbers that do not fit together. Refused: what cannot be meant. Clipped, with a sentence in
// `notes` for the start banner: what has an obvious nearest value.
Result<SchedulerConfig> check_scheduler_config(SchedulerConfig config, std::vector<std::string>& notes);

}  // namespace gapless
