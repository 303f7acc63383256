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
  double new_token_ratio() const { return s_.new_token_ratio_.value(); }

 private:
  Scheduler& s_;
};

}  // namespace gapless
