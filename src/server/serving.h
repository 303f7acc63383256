// What a handler may use while the engine is attached. Owned by the router; responses hold it by shared_ptr,
// because the engine may keep a sink a little longer than the server lives.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/trace.h"
#include "engine/engine_api.h"
#include "server/generation_plan.h"
#include "server/live_feed.h"
#include "server/server_metrics.h"

namespace gapless {

struct Serving {
  EngineApi& engine;
  ServerMetrics metrics;
  TraceRing& trace;  // written by the http thread
  RequestLimits limits;
  int64_t max_stream_backlog_bytes;
  std::string fingerprint;  // changes with the model file
  std::shared_ptr<LiveFeed> live;
  // By the name that clients know (PromptState::name), which need not be unique. http thread.
  std::set<std::pair<std::string, RequestId>> open_requests = {};
};

}  // namespace gapless
