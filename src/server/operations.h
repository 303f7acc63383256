// What routers and operators ask a worker of a fleet, under the names SGLang gave it. Rows of the table in
// routes.cc.
#pragma once

#include "server/route.h"

namespace gapless {

// Generates one token: 200 once it came, 503 when none comes in time.
Reply probe_generation(Call call);
Reply show_model_info(Call call);
Reply show_server_info(Call call);
// One entry, because one scheduler serves: {"dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens"}.
Reply show_load(Call call);
// Drops every cached prefix; 409 while requests run or wait.
Reply flush_cache(Call call);
// {"rid": the name of a request}, {"id": its number in the engine} or {"abort_all": true} -> {"aborted": how
// many}.
Reply abort_requests(Call call);

}  // namespace gapless
