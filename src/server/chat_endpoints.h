// Endpoints that look at a chat and generate nothing. They answer from the text pool.
#pragma once

#include "server/route.h"

namespace gapless {

// POST /apply-template: a chat's body -> {"prompt": what the model reads}.
Reply apply_template(Call call);
// POST /v1/messages/count_tokens: a body of /v1/messages -> {"input_tokens": n}.
Reply count_tokens(Call call);

}  // namespace gapless
