#include "scheduler/scheduler.h"

namespace gapless {

void Scheduler::event_loop_normal() {
  for (;;) {
    switch (step_normal()) {
      case LoopWait::kNothing:
        break;
      case LoopWait::kRequests:
        wait_for_requests();
        break;
      case LoopWait::kResult:
        break;  // taking the result waits for its copy_done
      case LoopWait::kStopped:
        return;
    }
  }
}

LoopWait Scheduler::step_normal() {
  DCHECK(role_.is_mine());
  if (!in_flight_.empty()) {
    InFlight last = std::move(in_flight_.front());
    in_flight_.pop_front();
    process_batch_result(std::move(last));
    return LoopWait::kNothing;
  }
  ingest_requests();
  BatchPlan plan = get_next_batch_to_run();
  if (plan.batch) {
    in_flight_.push_back(run_batch(std::move(*plan.batch)));
    return LoopWait::kResult;
  }
  on_idle();
  return inbox_.closed() && inbox_.size() == 0 ? LoopWait::kStopped : LoopWait::kRequests;
}

}  // namespace gapless
