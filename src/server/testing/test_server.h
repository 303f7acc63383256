// A server on a free port with a fake engine behind it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/log.h"
#include "server/http_server.h"
#include "server/testing/fake_engine.h"
#include "server/testing/http_client.h"

namespace gapless::testing {

struct TestServer {
  explicit TestServer(FakeOptions options = {}, ServerConfig config = {}) : engine(std::move(options)) {
    spdlog::set_level(spdlog::level::err);  // a line per request would bury what failed
    config.port = 0;
    auto created = HttpServer::create(config);
    CHECK(created.is_ok(), "{}", created.status().message());
    server = std::move(created).value();
    server->set_engine(engine);
  }
  HttpClient client() const { return HttpClient(server->port()); }

  FakeEngine engine;
  std::unique_ptr<HttpServer> server;
};

// Waits up to ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; i++) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

// Nothing runs or waits in the engine.
inline bool idle(const FakeEngine& engine) {
  const LoadStats load = engine.load();
  return load.running == 0 && load.queued == 0;
}

}  // namespace gapless::testing
