// The events of one request as calls of the library's user. Created on the submitting thread, then owned by
// the engine; its events come on engine threads, one at a time.
#pragma once

#include <gapless/engine.h>

#include "engine/engine_api.h"

namespace gapless {

class CallbackSink final : public ResponseSink {
 public:
  CallbackSink(v1::Engine::OnDelta on_delta, v1::Engine::OnEnd on_end)
      : on_delta_(std::move(on_delta)), on_end_(std::move(on_end)) {}
  void on_event(ResponseEvent event) override;

 private:
  void on(Accepted&) {}
  void on(PromptScored&) {}
  void on(ChoiceDelta& delta);
  void on(Done& done);
  void on(Failed& failed);

  const v1::Engine::OnDelta on_delta_;
  const v1::Engine::OnEnd on_end_;
  v1::Engine::Outcome outcome_;
};

}  // namespace gapless
