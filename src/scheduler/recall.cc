// A newcomer does not wait a step longer than in the normal loop: the batch that is queued behind the one
// being computed is taken back, the newcomer's prompt appended, and the whole launched again under a new id.
#include "scheduler/scheduler.h"

namespace gapless {

// Whether somebody who waits could have been admitted to the batch when it was composed.
bool Scheduler::may_join(const ScheduleBatch& batch) const {
  if (waiting_.empty() || waiting_.front()->retracted)
    return false;  // who was sent back does not come this way
  if (!flushes_.empty() || !switches_.empty()) return false;
  if (chunked_req_) return false;  // a prompt was cut: nothing follows it
  if (PrefillAdder::chunk_tokens(config_, batch.n_decode_rows()) <= batch.n_prefill_tokens()) return false;
  if (!batch.admits() || n_live() >= config_.max_running_requests || memory_.rows.free_slots() == 0)
    return false;
  return config_.mixed_chunk || batch.mode() == ForwardMode::kExtend;
}

void Scheduler::recall_for_newcomers(ModelWorkerClient& worker) {
  if (!newcomers_ || in_flight_.size() < kMaxOutstanding) return;
  newcomers_ = false;
  // The device is about to begin with it, if it has not: it should not wait for another.
  if (in_flight_.front().ticket.copy_done().ready()) return;
  if (!may_join(in_flight_.back().batch) || !in_flight_.back().ticket.try_recall()) return;
  metrics_.recalls.add();
  Phase recall = phase(HostPhase::kRecall);
  recall.set_args(in_flight_.back().id);
  ScheduleBatch batch = std::move(in_flight_.back().batch);
  in_flight_.pop_back();
  const size_t launched_rows = batch.rows().size();
  // Its decode rows have the pages of this step; what they lack is for the next.
  get_new_batch_prefill(batch, size_t(batch.n_decode_rows()), pages_needed(decode_candidates()), true);
  in_flight_.push_back(run_batch(std::move(batch), launched_rows, worker));
}

}  // namespace gapless
