#include "server/router.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/trace_names.h"
#include "server/api_error.h"
#include "server/endpoints.h"
#include "server/generation_response.h"
#include "server/json_writer.h"

namespace gapless {

namespace {

struct Route {
  std::string_view path;
  bool get, post;      // GET brings HEAD with it
  bool while_loading;  // answers without an engine
  bool for_operators = false;
};

constexpr Route kRoutes[] = {
    {"/", true, false, true},
    {"/health", true, false, true},
    {"/ready", true, false, true},
    {"/metrics", true, false, false},
    {"/trace", true, false, false, true},
    {"/profile", true, true, false, true},
    {"/scheduler/loop", true, true, false, true},
    {"/v1/models", true, false, false},
    {"/v1/models/{id}", true, false, false},
    {"/v1/chat/completions", false, true, false},
    {"/v1/completions", false, true, false},
    {"/tokenize", false, true, false},
    {"/detokenize", false, true, false},
};
constexpr std::string_view kModelPrefix = "/v1/models/";

const Route* find_route(std::string_view path) {
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) path = "/v1/models/{id}";
  const auto it =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& r) { return r.path == path; });
  return it == std::end(kRoutes) ? nullptr : it;
}

std::string allowed_methods(const Route& route) {
  return fmt::format("{}{}OPTIONS", route.get ? "GET, HEAD, " : "", route.post ? "POST, " : "");
}

std::string fingerprint_of(const ModelFacts& model) {
  const std::string facts =
      fmt::format("{}|{}|{}|{}", model.id, model.architecture, model.quantisation, model.file_bytes);
  return fmt::format("fp_{:012x}", std::hash<std::string>{}(facts)&0xFFFFFFFFFFFF);
}

}  // namespace

Router::Router(const ServerConfig& config) : config_(config), access_(config.api_keys, config.cors_origins) {}

void Router::attach(EngineApi& engine) {
  std::atomic_store(&serving_,
                    std::make_shared<Serving>(
                        Serving{engine, ServerMetrics(engine.metrics()), engine.tracer().ring(trace::kHttp),
                                RequestLimits{config_.max_completion_logprobs, config_.strict_model},
                                config_.max_stream_backlog_bytes, fingerprint_of(engine.model())}));
}

std::string Router::endpoint_of(const std::string& path) const {
  const Route* route = find_route(path);
  return route ? std::string(route->path) : "other";
}

std::optional<HttpResponse> Router::refuse_early(const HttpRequest& request) const {
  if (request.method == "OPTIONS") return std::nullopt;
  if (const Status status = access_.authorize(request); !status.is_ok())
    return error_response(status, request.id);
  const Route* route = find_route(request.path);
  if (!route) {
    return error_response(
        Status(StatusCode::kNotFound,
               fmt::format("there is no '{}' here; GET / lists what there is", printable(request.path))),
        request.id);
  }
  const bool post = request.method == "POST", get = request.method == "GET" || request.method == "HEAD";
  const bool right_method = (post && route->post) || (get && route->get);
  if (!right_method) {
    HttpResponse response = error_response(
        405, fmt::format("{} takes {}", route->path, allowed_methods(*route)), "method_not_allowed");
    response.headers.emplace_back("Allow", allowed_methods(*route));
    return response;
  }
  if (const Status status = access_.authorize_operator(request); route->for_operators && !status.is_ok())
    return error_response(403, status.message(), "forbidden");
  if (route->while_loading) return std::nullopt;
  if (!serving())
    return error_response(Status(StatusCode::kUnavailable, "the model is still loading"), request.id);
  if (post && draining_) {
    return error_response(Status(StatusCode::kUnavailable, "the server is shutting down"), request.id);
  }
  if (post && !request.content_encoding.empty() && request.content_encoding != "identity") {
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
    const Route* route = find_route(request.path);
    response.headers.emplace_back("Allow", route ? allowed_methods(*route) : "OPTIONS");
    return response;
  }
  if (std::optional<HttpResponse> refused = refuse_early(request)) return *std::move(refused);
  if (request.path == "/") return describe_endpoints();
  if (request.path == "/health") return json_response(R"({"status":"ok"})");
  if (request.path == "/ready") return ready(request.id);
  std::shared_ptr<Serving> serving = this->serving();
  TraceSpan span(serving->trace, trace::kRequest);
  span.set_args(int64_t(request.body.size()));
  if (request.path == "/trace") return show_trace(std::move(serving), std::move(request));
  if (request.path == "/profile" && request.method == "POST") return reset_profile(serving->engine, request);
  if (request.method == "POST") return post(std::move(request), std::move(serving));
  return get(request, *serving);
}

HttpResponse Router::ready(const std::string& request_id) const {
  const std::shared_ptr<Serving> serving = this->serving();
  Status status(StatusCode::kUnavailable, "the model is still loading");
  if (serving) status = serving->engine.ready();
  if (draining_) status = Status(StatusCode::kUnavailable, "the server is shutting down");
  if (status.is_ok()) return json_response(R"({"status":"ready"})");
  return error_response(Status(StatusCode::kUnavailable, status.message()), request_id);
}

HttpResponse Router::get(const HttpRequest& request, const Serving& serving) const {
  if (request.path == "/metrics") return show_metrics(serving.engine);
  if (request.path == "/scheduler/loop") return show_loop(serving.engine);
  if (request.path == "/profile") return show_profile(serving.engine, request);
  if (request.path == "/v1/models") return list_models(serving.engine.model());
  return show_model(serving.engine.model(), request.path.substr(kModelPrefix.size()), request.id);
}

std::shared_ptr<PendingResponse> Router::post(HttpRequest request, std::shared_ptr<Serving> serving) const {
  if (request.path == "/scheduler/loop") return switch_loop(std::move(serving), std::move(request));
  if (request.path == "/tokenize") return tokenize(std::move(serving), std::move(request));
  if (request.path == "/detokenize") return detokenize(std::move(serving), std::move(request));
  const PlanParser parser = request.path == "/v1/completions" ? parse_completion_request : parse_chat_request;
  return std::make_shared<GenerationResponse>(std::move(serving), parser, std::move(request));
}

void Router::decorate(const HttpRequest& request, HttpResponse& response) const {
  response.headers.emplace_back("X-Request-Id", request.id);
  access_.add_cors_headers(request, response);
}

}  // namespace gapless
