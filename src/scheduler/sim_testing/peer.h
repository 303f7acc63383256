// What these tests read, and their planted faults change, inside a scheduler between its steps.
#pragma once

#include "scheduler/scheduler.h"

namespace gapless {

class SchedulerTestPeer {
 public:
  explicit SchedulerTestPeer(Scheduler& s) : s_(s) {}

  EventLoop loop() const { return s_.loop_; }
  KvMemory& memory() { return s_.memory_; }
  const std::deque<InFlight>& in_flight() const { return s_.in_flight_; }
  int64_t dropped_rows() const { return int64_t(s_.metrics_.late_rows(RowStatus::kDropped).value()); }
  template <class F>
  void for_each_live(const F& f) {
    s_.for_each_live(f);
  }
  // f(req, kv_done, held) of what is given back once the last launched batch has completed.
  template <class F>
  void for_each_retiring(const F& f) {
    for (auto& r : s_.retiring_) f(*r.req, r.kv_done, r.held);
  }

 private:
  Scheduler& s_;
};

}  // namespace gapless
