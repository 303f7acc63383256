// The endpoints that do not generate: rows of the table in routes.cc. Those that may take long answer from
// the text pool or the scheduler's thread.
#pragma once

#include "server/route.h"

namespace gapless {

Reply list_models(Call call);
Reply show_model(Call call);
// The process is alive.
Reply show_health(Call call);
// 503 with the reason: not loaded, draining, or stuck.
Reply show_ready(Call call);
Reply show_metrics(Call call);
// GET /trace[?seconds=N] : Chrome's trace format, of the last N seconds or of all that is kept.
Reply show_trace(Call call);
Reply show_profile(Call call);
Reply reset_profile(Call call);
// GET /scheduler/loop -> {"loop": the one that runs}
Reply show_loop(Call call);
// POST /scheduler/loop {"loop": "overlap" or "normal"} -> the same, once the loop has been switched.
Reply switch_loop(Call call);
// POST /tokenize {"content" or "prompt", "add_special" or "add_special_tokens", "parse_special"} ->
// {"tokens": [ids]}.
Reply tokenize(Call call);
// What vLLM's /tokenizer_info has, as far as clients read it: lm-eval looks for it and then tokenizes here.
Reply show_tokenizer_info(Call call);
// POST /detokenize {"tokens": [ids], "skip_special_tokens"} -> {"content": text}.
Reply detokenize(Call call);

}  // namespace gapless
