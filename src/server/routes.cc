#include <algorithm>

#include "server/chat_endpoints.h"
#include "server/endpoints.h"
#include "server/generation_response.h"
#include "server/json_writer.h"
#include "server/later_response.h"
#include "server/live_response.h"
#include "server/messages_request.h"
#include "server/operations.h"
#include "server/page.h"
#include "server/responses_request.h"
#include "server/route.h"

namespace gapless {

namespace {

// The page for browsers, for all others what can be called here.
Reply show_root(Call call) {
  if (wants_page(call.request)) return page_response(call.request);
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("name").string("gapless").key("endpoints").begin_array();
  for (const Route& route : routes()) w.string(fmt::format("{} {}", route.method, route.path));
  w.end_array().end_object();
  return json_response(out + "\n");
}

template <auto parser>
Reply generate(Call call) {
  return std::make_shared<GenerationResponse>(std::move(call.serving), parser, std::move(call.request));
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", Who::kClients, When::kLoaded, generate<parse_chat_request>},
    {"POST", "/v1/completions", Who::kClients, When::kLoaded, generate<parse_completion_request>},
    {"POST", "/v1/embeddings", Who::kClients, When::kLoaded, generate<parse_embedding_request>},
    {"POST", "/v1/responses", Who::kClients, When::kLoaded, generate<parse_responses_request>},
    {"POST", "/v1/messages", Who::kClients, When::kLoaded, generate<parse_messages_request>},
    {"POST", "/v1/messages/count_tokens", Who::kClients, When::kLoaded, count_tokens},
    {"POST", "/apply-template", Who::kClients, When::kLoaded, apply_template},
    {"GET", "/v1/models", Who::kClients, When::kLoaded, list_models},
    {"GET", "/v1/models/{id}", Who::kClients, When::kLoaded, show_model},
    {"POST", "/generate", Who::kClients, When::kLoaded, generate<parse_native_request>},
    {"POST", "/tokenize", Who::kClients, When::kLoaded, tokenize},
    {"GET", "/tokenizer_info", Who::kClients, When::kLoaded, show_tokenizer_info},
    {"POST", "/detokenize", Who::kClients, When::kLoaded, detokenize},
    {"GET", "/health", Who::kAnyone, When::kAlways, show_health},
    {"GET", "/ready", Who::kAnyone, When::kAlways, show_ready},
    {"GET", "/health_generate", Who::kClients, When::kLoaded, probe_generation},
    {"GET", "/model_info", Who::kClients, When::kLoaded, show_model_info},
    {"GET", "/get_model_info", Who::kClients, When::kLoaded, show_model_info},
    {"GET", "/server_info", Who::kClients, When::kLoaded, show_server_info},
    {"GET", "/get_server_info", Who::kClients, When::kLoaded, show_server_info},
    {"GET", "/get_load", Who::kClients, When::kLoaded, show_load},
    {"POST", "/flush_cache", Who::kOperators, When::kLoaded, flush_cache},
    {"GET", "/flush_cache", Who::kOperators, When::kLoaded, flush_cache},
    {"POST", "/abort_request", Who::kOperators, When::kLoaded, abort_requests},
    {"GET", "/metrics", Who::kClients, When::kLoaded, show_metrics},
    {"GET", "/trace", Who::kOperators, When::kLoaded, show_trace},
    {"GET", "/live", Who::kOperators, When::kLoaded, show_live},
    {"GET", "/profile", Who::kOperators, When::kLoaded, show_profile},
    {"POST", "/profile", Who::kOperators, When::kLoaded, reset_profile},
    {"GET", "/scheduler/loop", Who::kOperators, When::kLoaded, show_loop},
    {"POST", "/scheduler/loop", Who::kOperators, When::kLoaded, switch_loop},
    {"GET", "/", Who::kPages, When::kAlways, show_root},
    {"GET", "/ui/{file}", Who::kAnyone, When::kAlways, show_page_file},
};

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('}')) return path == pattern;
  const std::string_view prefix = pattern.substr(0, pattern.rfind('{'));
  return path.starts_with(prefix) && path.size() > prefix.size();
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

std::string_view served_path(std::string_view path) {
  const auto* const it = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                      [&](const Route& r) { return matches(r.path, path); });
  return it == std::end(kRoutes) ? std::string_view() : it->path;
}

const Route* find_route(std::string_view method, std::string_view served) {
  if (method == "HEAD") method = "GET";
  const auto* const it = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                      [&](const Route& r) { return r.path == served && r.method == method; });
  return it == std::end(kRoutes) ? nullptr : it;
}

std::string allowed_methods(std::string_view served) {
  std::string methods;
  if (find_route("GET", served)) methods += "GET, HEAD, ";
  if (find_route("POST", served)) methods += "POST, ";
  return methods + "OPTIONS";
}

}  // namespace gapless
