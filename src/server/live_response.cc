#include "server/live_response.h"

#include "server/answer_json.h"
#include "server/api_error.h"
#include "server/later_response.h"
#include "server/live_feed.h"

namespace gapless {

namespace {

class LiveResponse final : public PendingResponse {
 public:
  LiveResponse(std::shared_ptr<Serving> serving, std::string request_id)
      : serving_(std::move(serving)), request_id_(std::move(request_id)) {}

  void start(std::function<void()> wake) override {
    inbox_ = std::make_shared<LiveInbox>(std::move(wake));
    refused_ = serving_->live->watch(inbox_);
  }

  Part take() override {
    Part part;
    if (!refused_.is_ok()) {
      part.head = error_response(refused_, request_id_);
      part.end = true;
      return part;
    }
    LiveInbox::Taken taken = inbox_->take();
    part.data = std::move(taken.text);
    part.end = taken.ended;
    if (!part.empty() && !std::exchange(begun_, true)) part.head = event_stream_response();
    return part;
  }

  Part keepalive() override {
    if (!begun_) return {};
    return {.head = {}, .data = std::string(kSseComment), .end = false, .reason = {}};
  }

  void cancel(const Status&) override {
    serving_->live->leave(inbox_);
    inbox_->end();
  }

 private:
  const std::shared_ptr<Serving> serving_;
  const std::string request_id_;
  std::shared_ptr<LiveInbox> inbox_;
  Status refused_;
  bool begun_ = false;
};

}  // namespace

Reply show_live(Call call) {
  if (call.request.method == "HEAD") return event_stream_response();
  return std::make_shared<LiveResponse>(std::move(call.serving), call.request.id);
}

}  // namespace gapless
