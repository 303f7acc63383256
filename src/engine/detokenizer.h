// Turns the scheduler's token deltas into text events. One thread of its own; per-request state lives on that
// thread only.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/queue.h"
#include "base/thread.h"
#include "base/trace.h"
#include "engine/engine_api.h"
#include "engine/incremental_text.h"
#include "sampling/token_bytes.h"

namespace gapless {

// A request that was admitted to the scheduler: what is needed to turn its tokens into events.
struct OpenRequest {
  RequestId id = 0;
  std::shared_ptr<ResponseSink> sink;
  int32_t n = 1;
  bool skip_special_tokens = true;
  Accepted accepted;
};

class Detokenizer : public TokenSink {
 public:
  // trace: written by the detokenizer thread. on_gone: called on that thread when a request's last event has
  // been delivered.
  Detokenizer(const TokenBytes& token_bytes, TraceRing& trace, std::function<void(RequestId)> on_gone);
  ~Detokenizer() override { close(); }

  // Any thread; never blocks. open() comes before the scheduler can know the request; refuse() is for one
  // that it never will.
  void open(OpenRequest request) { queue_.try_push(std::move(request)); }
  void refuse(RequestId id, std::shared_ptr<ResponseSink> sink, Status status);
  void on_tokens(std::vector<TokenDelta> deltas) override { queue_.try_push(std::move(deltas)); }
  // Delivers what is queued, then joins. Requests still open get Failed(kUnavailable). Idempotent.
  void close();

 private:
  struct Refusal {
    RequestId id;
    std::shared_ptr<ResponseSink> sink;
    Status status;
  };
  using Message = std::variant<OpenRequest, Refusal, std::vector<TokenDelta>>;

  struct Choice {
    std::string held;   // text bytes that may not be shown yet
    int64_t shown = 0;  // text bytes already passed on
    Utf8Stream utf8;
    bool ended = false;
  };
  struct OpenState {
    OpenRequest request;
    std::vector<Choice> choices;
    Usage usage;
    int32_t ended = 0;
    bool begun = false, prompt_scored = false;
    Status error;
  };

  void loop();
  void handle(OpenRequest request);
  void handle(Refusal refusal);
  void handle(std::vector<TokenDelta> deltas);
  void handle_delta(OpenState& state, TokenDelta delta);
  std::string advance_text(OpenState& state, Choice& choice, const TokenDelta& delta) const;
  TokenText token_text(const OutputToken& token, bool skip_special) const;

  const TokenBytes& token_bytes_;
  TraceRing& trace_;
  const std::function<void(RequestId)> on_gone_;
  Queue<Message> queue_;
  std::unordered_map<RequestId, OpenState> open_;  // detokenizer thread
  NamedThread thread_;
};

}  // namespace gapless
