// GET /live: a row of the table in routes.cc.
#pragma once

#include "server/route.h"

namespace gapless {

// A stream of events that ends when the viewer goes or the server drains.
Reply show_live(Call call);

}  // namespace gapless
