// Everything that can be called, in one table: from it come dispatch, 404 and 405, who may call, the names of
// endpoints in metrics, and `GET /`. To add an endpoint is to add a row in routes.cc, and one in docs/api.md.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/http_message.h"
#include "server/serving.h"

namespace gapless {

enum class Who : uint8_t {
  kAnyone,     // no key is asked for
  kPages,      // nor of a browser that is to be shown the page (wants_page()); of all others as kClients
  kClients,    // whoever has a key, on a server that has keys
  kOperators,  // besides, on a server without keys, only callers on the same machine (AccessRules)
};

enum class When : uint8_t {
  kAlways,  // also while the model loads: Call::serving may be null
  kLoaded,
};

// What a handler is given: it may keep or take apart all of it.
struct Call {
  HttpRequest request;
  std::shared_ptr<Serving> serving;
  bool draining = false;  // the server is shutting down (a POST does not get as far as its handler then)
};

struct Route {
  std::string_view method;  // "GET", which answers HEAD too, or "POST"
  std::string_view path;    // a last part in braces stands for all that may come there
  Who who;
  When when;
  Reply (*handler)(Call call);  // http thread; must not block
};

std::span<const Route> routes();
// The path as the table has it, "/v1/models/{id}" for "/v1/models/x". Empty: nothing is served there.
std::string_view served_path(std::string_view path);
// served: of served_path(). nullptr: it does not take that method.
const Route* find_route(std::string_view method, std::string_view served);
// "GET, HEAD, OPTIONS": for the header Allow.
std::string allowed_methods(std::string_view served);

}  // namespace gapless
