// Answers in one piece that another thread gives.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http_message.h"
#include "server/serving.h"

namespace gapless {

// 200 with this JSON text.
HttpResponse json_response(std::string body);
// The head of a stream of server-sent events.
HttpResponse event_stream_response();

// A JSON answer or an error. The one who makes it calls finish() and then the `wake` that start() was given.
class LaterResponse : public PendingResponse {
 public:
  LaterResponse(std::shared_ptr<Serving> serving, HttpRequest request)
      : serving_(std::move(serving)), request_(std::move(request)) {}

  Part take() override;
  void cancel(const Status& why) override { finish(why); }

 protected:
  // Any thread. The first result counts.
  void finish(Result<std::string> result);

  const std::shared_ptr<Serving> serving_;
  HttpRequest request_;

 private:
  std::mutex mutex_;
  std::optional<Result<std::string>> result_;
};

// An answer that the text pool makes.
class PoolResponse final : public LaterResponse, public std::enable_shared_from_this<PoolResponse> {
 public:
  using Job = std::function<Result<std::string>(const Serving&, std::string body)>;
  PoolResponse(std::shared_ptr<Serving> serving, HttpRequest request, Job job)
      : LaterResponse(std::move(serving), std::move(request)), job_(std::move(job)) {}

  void start(std::function<void()> wake) override;

 private:
  const Job job_;
};

}  // namespace gapless
