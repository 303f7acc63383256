// Both loops, side by side: the same calls in another order. The difference is the point of this program.
//
// normal:   ingest -> compose B_i -> launch B_i -> wait for B_i -> process B_i
// overlap:  ingest -> compose B_i, knowing results up to B_{i-2} -> launch B_i -> wait for B_{i-1} -> process
// it
//
// In the overlap loop the device finds B_i queued behind B_{i-1} and never waits for the host; tokens that
// the host has not seen yet are placeholders, which the device fills in (docs/overlap.md). The masks of rows
// with a grammar follow their launch as soon as all results before it are known: while its model part runs.
#include "base/check.h"
#include "base/trace_names.h"
#include "scheduler/scheduler.h"

namespace gapless {

const char* event_loop_name(EventLoop loop) {
  return loop == EventLoop::kOverlap ? "overlap" : "normal";
}

LoopWait Scheduler::event_loop_normal() {
  if (!in_flight_.empty()) {
    process_oldest_result();
    return LoopWait::kNothing;
  }
  ingest_requests();
  if (launch_next_batch(normal_worker_)) return LoopWait::kResult;
  return when_nothing_runs();
}

LoopWait Scheduler::event_loop_overlap() {
  ingest_requests();
  recall_for_newcomers(overlap_worker_);
  if (in_flight_.size() < kMaxOutstanding && launch_next_batch(overlap_worker_)) return LoopWait::kNothing;
  if (in_flight_.empty()) return when_nothing_runs();
  if (!in_flight_.front().ticket.copy_done().ready()) return LoopWait::kResultOrRequests;
  process_oldest_result();
  return LoopWait::kNothing;
}

void Scheduler::set_loop(EventLoop loop) {
  CHECK(loop == loop_ || in_flight_.empty(), "the loop changes while nothing is in flight");
  loop_ = loop;
  metrics_.overlap_loop.set(loop == EventLoop::kOverlap);
}

LoopWait Scheduler::step() {
  DCHECK(role_.is_mine());
  if (!switches_.empty() && in_flight_.empty()) switch_loop();
  return loop_ == EventLoop::kOverlap ? event_loop_overlap() : event_loop_normal();
}

void Scheduler::run(EventLoop loop) {
  set_loop(loop);
  for (;;) {
    switch (step()) {
      case LoopWait::kNothing:
      case LoopWait::kResult:  // taking it waits for its copy_done
        break;
      case LoopWait::kRequests: {
        TraceSpan idle(trace_, trace::kIdle);
        wait_for_requests();
      } break;
      case LoopWait::kResultOrRequests:
        wait_for_result_or_requests();
        break;
      case LoopWait::kStopped:
        return;
    }
  }
}

// False: there is nothing to launch, or not now.
bool Scheduler::launch_next_batch(ModelWorkerClient& worker) {
  if (!switches_.empty()) return false;
  newcomers_ = false;
  BatchPlan plan = get_next_batch_to_run();
  if (!plan.batch) return false;
  in_flight_.push_back(run_batch(std::move(*plan.batch), 0, worker));
  send_sampling_info();
  return true;
}

// Waits for the result when it is not there.
void Scheduler::process_oldest_result() {
  Event& copied = in_flight_.front().ticket.copy_done();
  if (!copied.ready()) {
    TraceSpan wait(trace_, trace::kWait);
    wait.set_args(int64_t(in_flight_.front().id));
    (void)copied.wait();
    note_wake(in_flight_.front());
  }
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  process_batch_result(std::move(oldest));
  send_sampling_info();
}

LoopWait Scheduler::when_nothing_runs() {
  if (!switches_.empty()) return LoopWait::kNothing;
  on_idle();
  return inbox_.closed() && inbox_.size() == 0 ? LoopWait::kStopped : LoopWait::kRequests;
}

void Scheduler::wait_for_requests() {
  inbox_.drain(true, messages_);
}

// A result pokes the inbox when it is there (run_batch).
void Scheduler::wait_for_result_or_requests() {
  const InFlight& oldest = in_flight_.front();
  TraceSpan wait(trace_, trace::kWait);
  wait.set_args(int64_t(oldest.id));
  if (inbox_.closed()) {
    (void)oldest.ticket.copy_done().wait();
  } else {
    wait_for_requests();
  }
  note_wake(oldest);
}

// How long after the device's end this thread runs again.
void Scheduler::note_wake(const InFlight& launched) {
  const Event& copied = launched.ticket.copy_done();
  if (copied.ready()) trace_.add(trace::kWake, copied.times().ended, steady_seconds(), int64_t(launched.id));
}

void Scheduler::switch_loop() {
  for (SwitchLoop& change : std::exchange(switches_, {})) {
    set_loop(change.to);
    if (change.done) change.done();
  }
}

}  // namespace gapless
