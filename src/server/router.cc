#include "server/router.h"

#include <functional>

#include "base/trace_names.h"
#include "server/api_error.h"
#include "server/json_writer.h"
#include "server/page.h"

namespace gapless {

namespace {

// Whether Anthropic's clients call this path: they read errors in a shape of their own.
bool speaks_messages(std::string_view path) {
  return path == "/v1/messages" || path.starts_with("/v1/messages/");
}

bool needs_key(const Route& route, const HttpRequest& request) {
  if (route.who == Who::kPages) return !wants_page(request);
  return route.who != Who::kAnyone;
}

std::string fingerprint_of(const ModelFacts& model) {
  const std::string facts =
      fmt::format("{}|{}|{}|{}", model.id, model.architecture, model.quantisation, model.file_bytes);
  return fmt::format("fp_{:012x}", std::hash<std::string>{}(facts)&0xFFFFFFFFFFFF);
}

}  // namespace

Router::Router(const ServerConfig& config) : config_(config), access_(config.api_keys, config.cors_origins) {}

void Router::attach(EngineApi& engine) {
  std::atomic_store(&serving_, std::make_shared<Serving>(Serving{
                                   engine, ServerMetrics(engine.metrics(), engine.model()),
                                   engine.tracer().ring(trace::kHttp),
                                   RequestLimits{config_.max_completion_logprobs, config_.strict_model},
                                   config_.max_stream_backlog_bytes, fingerprint_of(engine.model()),
                                   std::make_shared<LiveFeed>(engine)}));
}

void Router::drain() {
  draining_ = true;
  if (const auto open = serving()) open->live->close();
}

std::string Router::endpoint_of(const std::string& path) const {
  const std::string_view served = served_path(path);
  return served.empty() ? "other" : std::string(served);
}

std::optional<HttpResponse> Router::refuse_early(const HttpRequest& request) const {
  if (request.method == "OPTIONS") return std::nullopt;
  const std::string_view served = served_path(request.path);
  const Route* const route = find_route(request.method, served);
  if (!route || needs_key(*route, request)) {
    if (const Status status = access_.authorize(request); !status.is_ok())
      return error_response(status, request.id);
  }
  if (served.empty()) {
    return error_response(
        Status(StatusCode::kNotFound,
               fmt::format("there is no '{}' here; GET / lists what there is", printable(request.path))),
        request.id);
  }
  if (route) return refuse_now(*route, request);
  const std::string allowed = allowed_methods(served);
  HttpResponse response =
      error_response(405, fmt::format("{} takes {}", served, allowed), "method_not_allowed");
  response.headers.emplace_back("Allow", allowed);
  return response;
}

std::optional<HttpResponse> Router::refuse_now(const Route& route, const HttpRequest& request) const {
  if (const Status status = access_.authorize_operator(request);
      route.who == Who::kOperators && !status.is_ok())
    return error_response(403, status.message(), "forbidden");
  if (route.when == When::kAlways) return std::nullopt;
  if (!serving())
    return error_response(Status(StatusCode::kUnavailable, "the model is still loading"), request.id);
  if (request.method != "POST") return std::nullopt;
  if (draining_)
    return error_response(Status(StatusCode::kUnavailable, "the server is shutting down"), request.id);
  if (!request.content_encoding.empty() && request.content_encoding != "identity") {
    return error_response(415, "the body must not be compressed: send it without Content-Encoding",
                          "unsupported_encoding");
  }
  return std::nullopt;
}

Reply Router::dispatch(HttpRequest request) {
  if (request.method == "OPTIONS") {
    if (!request.preflight_method.empty()) return access_.preflight(request);
    HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", allowed_methods(served_path(request.path)));
    return response;
  }
  if (std::optional<HttpResponse> refused = refuse_early(request)) return *std::move(refused);
  const Route& route = *find_route(request.method, served_path(request.path));
  Call call{std::move(request), serving(), draining_};
  if (route.when == When::kAlways) return route.handler(std::move(call));
  TraceSpan span(call.serving->trace, trace::kRequest);
  span.set_args(int64_t(call.request.body.size()));
  return route.handler(std::move(call));
}

void Router::decorate(const HttpRequest& request, HttpResponse& response) const {
  response.headers.emplace_back("X-Request-Id", request.id);
  access_.add_cors_headers(request, response);
  if (response.status >= 400 && speaks_messages(request.path))
    response.body = messages_error_json(response.status, response.message, request.id);
}

}  // namespace gapless
