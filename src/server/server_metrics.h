// What the HTTP side counts, in the engine's registry.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/metrics.h"
#include "engine/engine_api.h"

namespace gapless {

class ServerMetrics {
 public:
  // model: named in the labels of gapless_info.
  ServerMetrics(MetricsRegistry& registry, const ModelFacts& model);

  // http thread. endpoint: the route ("/v1/models/{id}"), never what a client sent.
  void count_request(const std::string& endpoint, int status);

  Gauge& connections;
  Counter& slow_readers_dropped;
  Counter& client_disconnects;  // the client went away before its response was complete
  // Seconds; any thread.
  Histogram& time_to_first_token;
  Histogram& inter_token_latency;
  Histogram& request_latency;
  // Tokens of a request, with all its prompts and answers; http thread.
  Histogram& request_prompt_tokens;
  Histogram& request_generation_tokens;

 private:
  MetricsRegistry& registry_;
  std::map<std::pair<std::string, int>, Counter*> requests_;
};

}  // namespace gapless
