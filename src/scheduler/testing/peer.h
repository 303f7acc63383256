// What tests may do to a scheduler between its steps.
#pragma once

#include "scheduler/scheduler.h"

namespace gapless {

class SchedulerTestPeer {
 public:
  explicit SchedulerTestPeer(Scheduler& s) : s_(s) {}

  Req& req(RequestId id, int32_t choice = 0) { return *s_.groups_.at(id)->choices.at(choice); }
  bool knows(RequestId id) const { return s_.groups_.contains(id); }
  KvMemory& memory() { return s_.memory_; }
  void abort(RequestId id) { s_.handle(AbortRequest{id}); }
  void retract(Req& req) { s_.retract(req); }
  BatchPlan compose() { return s_.get_next_batch_to_run(); }
  std::vector<RequestId> waiting() const {
    std::vector<RequestId> ids;
    for (const Req* req : s_.waiting_) ids.push_back(req->request().id);
    return ids;
  }
  std::vector<RequestId> running() const {
    std::vector<RequestId> ids;
    s_.for_each_live([&](const Req& req) { ids.push_back(req.request().id); });
    return ids;
  }
  const std::deque<InFlight>& in_flight() const { return s_.in_flight_; }
  const std::deque<Req*>& waiting_reqs() const { return s_.waiting_; }
  const Req* chunked_req() const { return s_.chunked_req_; }
  template <class F>
  void for_each_live(const F& f) const {
    s_.for_each_live(f);
  }
  bool switch_pending() const { return !s_.switches_.empty(); }
  bool flush_or_switch_pending() const { return !s_.flushes_.empty() || !s_.switches_.empty(); }
  double new_token_ratio() const { return s_.new_token_ratio_.value(); }

 private:
  Scheduler& s_;
};

}  // namespace gapless
