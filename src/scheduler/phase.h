// A part of the scheduler's loop: a span in its trace and an observation of how long it took.
#pragma once

#include "base/metrics.h"
#include "base/trace.h"

namespace gapless {

class Phase {
 public:
  Phase(TraceRing& ring, const TraceName& name, Histogram& seconds) : span_(ring, name), seconds_(&seconds) {}
  ~Phase() {
    if (seconds_) seconds_->observe(span_.end());
  }
  template <class... Args>
  void set_args(Args... args) {
    span_.set_args(int64_t(args)...);
  }
  // Nothing happened that is worth noting.
  void drop() {
    span_.drop();
    seconds_ = nullptr;
  }

 private:
  TraceSpan span_;
  Histogram* seconds_;
};

}  // namespace gapless
