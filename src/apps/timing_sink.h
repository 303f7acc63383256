// A sink that notes when the tokens of a request came, for benchmarks in this process.
#pragma once

#include "base/clock.h"
#include "device/device.h"
#include "engine/engine_api.h"

namespace gapless {

// When the tokens of one request came.
struct Timing {
  double first = 0, last = 0;
  int tokens = 0;
  Status error;
};

// Notes times on the engine's thread, where the token arrives.
class TimingSink : public ResponseSink {
 public:
  void on_event(ResponseEvent event) override {
    if (const auto* delta = std::get_if<ChoiceDelta>(&event)) {
      const double now = steady_seconds();
      if (timing_.tokens == 0 && !delta->tokens.empty()) timing_.first = now;
      timing_.tokens += int(delta->tokens.size());
      timing_.last = now;
      if (delta->finish && delta->finish->reason == FinishReason::kError)
        timing_.error = delta->finish->status;
    }
    if (auto* failed = std::get_if<Failed>(&event)) timing_.error = failed->status;
    const bool over = std::holds_alternative<Done>(event) || std::holds_alternative<Failed>(event);
    if (over) done_.set();
  }
  const Timing& wait() {
    (void)done_.wait();
    return timing_;
  }

 private:
  Timing timing_;
  HostEvent done_;
};

}  // namespace gapless
