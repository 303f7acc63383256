#include "server/server_metrics.h"

#include <fmt/format.h>

#include "server/json_writer.h"

namespace gapless {

namespace {

std::vector<double> seconds_from_millisecond() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}

std::vector<double> token_counts() {
  return {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536};
}

// As a label's value: neither quotes nor line ends.
std::string label(std::string_view name, const std::string& value) {
  std::string escaped;
  for (const char c : printable(value)) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fmt::format("{}=\"{}\"", name, escaped);
}

std::string info_labels(const ModelFacts& model) {
  return fmt::format("{},{},{},{}", label("version", GAPLESS_VERSION), label("model", model.id),
                     label("architecture", model.architecture), label("quantisation", model.quantisation));
}

}  // namespace

ServerMetrics::ServerMetrics(MetricsRegistry& registry, const ModelFacts& model)
    : connections(registry.gauge("gapless_http_connections", "Open client connections")),
      slow_readers_dropped(
          registry.counter("gapless_http_slow_readers_dropped_total",
                           "Connections closed because the client did not read its response")),
      client_disconnects(registry.counter("gapless_http_client_disconnects_total",
                                          "Clients that went away before their response was complete")),
      time_to_first_token(registry.histogram("gapless_time_to_first_token_seconds",
                                             "From the request's arrival to its first token",
                                             seconds_from_millisecond())),
      inter_token_latency(registry.histogram(
          "gapless_inter_token_latency_seconds", "Between two tokens of one answer",
          {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10})),
      request_latency(registry.histogram("gapless_e2e_request_latency_seconds",
                                         "From a generation request's arrival to its last token",
                                         {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600})),
      request_prompt_tokens(registry.histogram("gapless_request_prompt_tokens",
                                               "Prompt tokens of a generation request", token_counts())),
      request_generation_tokens(registry.histogram("gapless_request_generation_tokens",
                                                   "Tokens generated for a request", token_counts())),
      registry_(registry) {
  registry.gauge("gapless_info", "Always 1: the labels say what serves", info_labels(model)).set(1);
}

void ServerMetrics::count_request(const std::string& endpoint, int status) {
  Counter*& counter = requests_[{endpoint, status}];
  if (!counter) {
    counter = &registry_.counter("gapless_http_requests_total", "HTTP requests by endpoint and status",
                                 fmt::format("endpoint=\"{}\",status=\"{}\"", endpoint, status));
  }
  counter->add();
}

}  // namespace gapless
