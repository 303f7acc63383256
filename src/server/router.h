// From a request to its handler in the table of route.h, and everything that is decided before one: keys,
// cross-origin, paths and methods, loading and draining. http thread, except attach() and drain().
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/access.h"
#include "server/http_message.h"
#include "server/route.h"
#include "server/server_config.h"
#include "server/serving.h"

namespace gapless {

class Router {
 public:
  explicit Router(const ServerConfig& config);

  // Any thread, once. The engine must outlive the router.
  void attach(EngineApi& engine);
  // Any thread. From now on: not ready, nothing new is started, and who watches is told that it is over.
  void drain();
  bool draining() const { return draining_; }

  Reply dispatch(HttpRequest request);
  // What can be refused before the body was read (key, path, method, loading). nullopt: go on.
  std::optional<HttpResponse> refuse_early(const HttpRequest& request) const;
  // Adds the headers that every response carries.
  void decorate(const HttpRequest& request, HttpResponse& response) const;
  // "/v1/models/{id}" for "/v1/models/x", "other" for what is not served: for metrics.
  std::string endpoint_of(const std::string& path) const;
  // nullptr while loading.
  std::shared_ptr<Serving> serving() const { return std::atomic_load(&serving_); }

 private:
  std::optional<HttpResponse> refuse_now(const Route& route, const HttpRequest& request) const;

  const ServerConfig config_;
  const AccessRules access_;
  std::shared_ptr<Serving> serving_;
  std::atomic<bool> draining_{false};
};

}  // namespace gapless
