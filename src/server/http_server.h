// The HTTP server: one thread, one event loop, all connections. It listens as soon as it exists and answers
// 503 until an engine is attached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine_api.h"
#include "server/server_config.h"

namespace gapless {

struct ServerStats {
  int64_t connections = 0;  // open now
  int64_t responding = 0;   // of them, with a response under way
  int64_t requests = 0;     // answered since the start
};

class HttpServer {
 public:
  // Binds and listens, then starts the thread. The error names the address and the system's reason.
  static Result<std::unique_ptr<HttpServer>> create(ServerConfig config);
  // Stops at once if it still runs. The engine must outlive the server.
  ~HttpServer();

  uint16_t port() const;                  // 0 on a unix socket
  std::vector<std::string> urls() const;  // what it listens on

  // Any thread, once.
  void set_engine(EngineApi& engine);
  // Any thread; returns at once. First call: not ready any more, nothing new is started, what runs may finish
  // within the shutdown timeout, after which open streams get an error event. Second call: everything is
  // aborted and closed.
  void shutdown();
  // Blocks until the server has stopped.
  void wait();
  ServerStats stats() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gapless
