// The body of /v1/messages, Anthropic's API.
#pragma once

#include "server/generation_plan.h"

namespace gapless {

// Any thread. Errors name Anthropic's fields.
Result<GenerationPlan> parse_messages_request(const JsonBody& body, const ModelFacts& model,
                                              const RequestLimits& limits);
// Of /v1/messages/count_tokens: the same, but max_tokens may be absent.
Result<GenerationPlan> parse_count_tokens(const JsonBody& body, const ModelFacts& model,
                                          const RequestLimits& limits);

}  // namespace gapless
