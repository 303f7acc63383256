// The masks of rows whose answer a grammar limits. They need the token before, so they are made when the
// batch is the oldest in flight: in the overlap loop the device computes its model part meanwhile.
#include <algorithm>

#include "base/check.h"
#include "base/trace_names.h"
#include "scheduler/scheduler.h"

namespace gapless {

void Scheduler::send_sampling_info() {
  if (in_flight_.empty() || !in_flight_.front().ticket.waits_for_sampling_info()) return;
  InFlight& oldest = in_flight_.front();
  Phase mask = phase(HostPhase::kMask);
  const size_t words = mask_words(config_.vocab_size);
  const auto rows = oldest.batch.rows();
  SamplingInfo info;
  const auto masked = size_t(std::ranges::count_if(rows, &ScheduledRow::masked));
  info.rows.reserve(masked);
  info.allowed.resize(masked * words);
  for (const ScheduledRow& row : rows) {
    if (!row.masked) continue;
    const size_t at = info.rows.size() * words;
    info.rows.push_back(fill_mask(row, std::span(info.allowed).subspan(at, words)));
  }
  mask.set_args(oldest.id, info.rows.size());
  oldest.ticket.set_sampling_info(std::move(info));
  if (deltas_.empty()) return;
  retire_finished();  // those whose grammar gave up
  send_deltas();
}

RowMask Scheduler::fill_mask(const ScheduledRow& row, std::span<uint32_t> allowed) {
  Req& req = *row.req;
  if (req.state() == ReqState::kFinished) return RowMask::kEnded;
  // A request that was sent back meanwhile keeps the token of this row (on_late_result).
  CHECK_EQ(row.output_index, req.output_len());
  Status status = req.grammar->fill_mask(allowed);
  if (status.is_ok()) return RowMask::kAllowed;
  finish(req, {FinishReason::kError, {}, std::move(status)}, add_delta(req));
  return RowMask::kEnded;
}

}  // namespace gapless
