#include "server/later_response.h"

#include "server/api_error.h"

namespace gapless {

HttpResponse json_response(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

HttpResponse event_stream_response() {
  HttpResponse response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return response;
}

PendingResponse::Part LaterResponse::take() {
  std::lock_guard lock(mutex_);
  if (!result_) return {};
  const Result<std::string> result = *std::exchange(result_, std::nullopt);
  return {.head = result.is_ok() ? json_response(*result) : error_response(result.status(), request_.id),
          .data = {},
          .end = true,
          .reason = {}};
}

void LaterResponse::finish(Result<std::string> result) {
  std::lock_guard lock(mutex_);
  if (!result_) result_ = std::move(result);
}

void PoolResponse::start(std::function<void()> wake) {
  auto work = [self = shared_from_this(), wake = std::move(wake)] {
    self->finish(self->job_(*self->serving_, std::move(self->request_.body)));
    wake();
  };
  if (serving_->engine.run_on_text_pool(std::move(work))) return;
  finish(Status(StatusCode::kUnavailable, "the server is too busy with other texts, try again"));
}

}  // namespace gapless
