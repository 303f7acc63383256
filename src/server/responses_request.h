// The body of /v1/responses, OpenAI's newer API. Nothing is stored: a conversation comes whole in each
// request.
#pragma once

#include "server/generation_plan.h"

namespace gapless {

// Any thread. Errors name the fields of this API.
Result<GenerationPlan> parse_responses_request(const JsonBody& body, const ModelFacts& model,
                                               const RequestLimits& limits);

}  // namespace gapless
