// The steady load over HTTP.
#include "apps/load_client.h"
#include "apps/steady_load.h"
#include "server/http_server.h"

namespace gapless {

namespace {

class HttpLoad : public SteadyLoad {
 public:
  HttpLoad(Engine& engine, const LoadShape& shape, uint64_t seed, std::unique_ptr<HttpServer> server)
      : shape_(shape), prompts_(*engine.parts().tokenizer, seed), server_(std::move(server)) {
    server_->set_engine(engine);
    thread_ = NamedThread("load", [this] { run(); });
  }
  ~HttpLoad() override {
    stopping_ = true;
    thread_.join();
  }
  Status error() const override {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  void run() {
    const LoadTarget target{"127.0.0.1", std::to_string(server_->port()), "/v1/completions", ""};
    const LoadFeed feed{.next = [this] { return std::optional(next()); },
                        .done = [this](size_t, LoadRecord record) { done(record); },
                        .stopped = [this] { return stopping_.load(); }};
    const Status status = run_load(target, feed, {.concurrency = shape_.open});
    if (!status.is_ok()) fail(status);
  }
  LoadRequest next() {
    const ShapedLength length = shaped_length(shape_, made_++);
    return {shaped_body(shape_, prompts_.next(length.prompt), length.decode)};
  }
  void done(const LoadRecord& record) {
    if (!record.error.empty()) fail(Status::internal("a request over HTTP failed: {}", record.error));
  }
  void fail(Status status) {
    std::lock_guard lock(mutex_);
    if (error_.is_ok()) error_ = std::move(status);
    stopping_ = true;
  }

  const LoadShape shape_;
  std::atomic<bool> stopping_{false};
  RandomPrompts prompts_;  // the load's thread
  int64_t made_ = 0;

  mutable std::mutex mutex_;
  Status error_;
  const std::unique_ptr<HttpServer> server_;
  NamedThread thread_;
};

}  // namespace

Result<std::unique_ptr<SteadyLoad>> http_load(Engine& engine, const LoadShape& shape, uint64_t seed) {
  ServerConfig config;
  config.port = 0;
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server, HttpServer::create(config));
  return std::unique_ptr<SteadyLoad>(std::make_unique<HttpLoad>(engine, shape, seed, std::move(server)));
}

}  // namespace gapless
