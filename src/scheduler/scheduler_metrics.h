// What the scheduler counts. Updated on its thread, readable from any.
#pragma once

#include <cstdint>
#include <iterator>

#include "base/metrics.h"
#include "base/trace_names.h"
#include "scheduler/request.h"

namespace gapless {

struct SchedulerMetrics {
  explicit SchedulerMetrics(MetricsRegistry& registry);

  Counter& finished(FinishReason reason) { return *finished_[size_t(reason)]; }
  Counter& steps(ForwardMode mode) { return *steps_[size_t(mode)]; }
  // Host time of the parts of the loop, by their names in the trace.
  enum class HostPhase : uint8_t { kIngest, kCompose, kLaunch, kRecall, kProcess, kMask, kSend };
  static constexpr const TraceName* kHostPhases[] = {&trace::kIngest, &trace::kCompose, &trace::kLaunch,
                                                     &trace::kRecall, &trace::kProcess, &trace::kMask,
                                                     &trace::kSend};
  Histogram& host_seconds(HostPhase phase) { return *host_seconds_[size_t(phase)]; }
  // Rows of requests that had ended when the result came: kOk was computed for nothing, kDropped cost
  // nothing.
  Counter& late_rows(RowStatus outcome) { return *late_rows_[size_t(outcome)]; }

  Counter& prompt_tokens;      // of admitted requests, once for all n choices, as usage counts them
  Counter& generation_tokens;  // sum over choices
  Counter& cached_tokens;      // prompt tokens that were not computed, as usage reports them
  Counter& prefill_tokens;     // computed prompt tokens, with what retraction made necessary again
  Counter& retractions;
  Counter& recalls;        // of a launched batch, for a newcomer
  Counter& memory_stalls;  // the device waited because a result had to give back pages first
  Counter& rejected;       // refused at the door: invalid or queue full
  Counter& kv_healed;
  Gauge& running;
  Gauge& queued;
  Gauge& kv_used_tokens;       // held by requests or launched batches
  Gauge& kv_peak_tokens;       // the most that kv_used_tokens has been
  Gauge& kv_cached_tokens;     // in the prefix cache
  Gauge& kv_evictable_tokens;  // of those, not in use
  Gauge& kv_total_tokens;
  Gauge& new_token_ratio;
  Gauge& overlap_loop;            // 1: the overlap loop is on, 0: the normal one
  Histogram& queue_seconds;       // arrival to first admission
  Histogram& mask_wait_seconds;   // of the device, for the masks of rows with a grammar
  Histogram& device_gap_seconds;  // end of a step to the start of the next, while there was work

 private:
  Counter* finished_[4];
  Counter* steps_[4];
  Counter* late_rows_[3];
  Histogram* host_seconds_[std::size(kHostPhases)];
};

// A picture of the scheduler for logs and /health. The values belong together only roughly.
struct SchedulerStats {
  int64_t running = 0, queued = 0;
  int64_t kv_used_tokens = 0, kv_peak_tokens = 0, kv_cached_tokens = 0, kv_total_tokens = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0, cached_tokens = 0, prefill_tokens = 0;
  int64_t steps = 0, retractions = 0, recalls = 0, memory_stalls = 0, wasted_rows = 0, kv_healed = 0;
};
SchedulerStats read_stats(SchedulerMetrics& metrics);

}  // namespace gapless
