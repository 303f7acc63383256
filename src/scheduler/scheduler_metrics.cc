#include "scheduler/scheduler_metrics.h"

namespace gapless {

SchedulerMetrics::SchedulerMetrics(MetricsRegistry& r)
    : prompt_tokens(r.counter("gapless_prompt_tokens_total", "Prompt tokens of admitted requests.")),
      generation_tokens(r.counter("gapless_generation_tokens_total", "Generated tokens.")),
      cached_tokens(r.counter("gapless_cached_tokens_total", "Prompt tokens found in the prefix cache.")),
      prefill_tokens(r.counter("gapless_prefill_tokens_total", "Prompt tokens computed.")),
      retractions(r.counter("gapless_retractions_total", "Requests sent back to the queue for memory.")),
      recalls(r.counter("gapless_recalls_total",
                        "Launched batches taken back so that a new request could join.")),
      memory_stalls(r.counter("gapless_memory_stalls_total",
                              "Steps that had to wait for a result to give back KV pages.")),
      rejected(r.counter("gapless_requests_rejected_total", "Requests refused before they were queued.")),
      kv_healed(r.counter("gapless_kv_healed_total",
                          "KV pages and request slots found lost and taken back. Always 0.")),
      running(r.gauge("gapless_running_requests", "Choices being computed.")),
      queued(r.gauge("gapless_queued_requests", "Choices that wait.")),
      kv_used_tokens(r.gauge("gapless_kv_used_tokens", "KV pool in use by requests.")),
      kv_peak_tokens(r.gauge("gapless_kv_peak_tokens", "The most that was in use by requests.")),
      kv_cached_tokens(r.gauge("gapless_kv_cached_tokens", "KV pool in the prefix cache.")),
      kv_evictable_tokens(r.gauge("gapless_kv_evictable_tokens", "Prefix cache that no request uses.")),
      kv_total_tokens(r.gauge("gapless_kv_total_tokens", "KV pool.")),
      new_token_ratio(r.gauge("gapless_new_token_ratio", "Expected share of max_tokens that is used.")),
      overlap_loop(r.gauge("gapless_overlap_loop", "1: the overlap loop is on; 0: the normal one.")),
      queue_seconds(r.histogram("gapless_queue_seconds", "From arrival to first admission.",
                                {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})),
      mask_wait_seconds(r.histogram("gapless_mask_wait_seconds",
                                    "How long the device stood still in a step for the masks of rows with a "
                                    "grammar.",
                                    {1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.1})),
      device_gap_seconds(r.histogram("gapless_device_gap_seconds",
                                     "From the end of a step on the device to the start of the next, while "
                                     "there was work.",
                                     {1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.1})) {
  constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};
  for (int i = 0; i < 4; i++) {
    finished_[i] = &r.counter("gapless_requests_total", "Finished choices by reason.",
                              std::string("reason=\"") + kReasons[i] + "\"");
  }
  for (int i = 0; i < 4; i++) {
    steps_[i] = &r.counter("gapless_steps_total", "Completed batches.",
                           std::string("mode=\"") + forward_mode_name(ForwardMode(i)) + "\"");
  }
  constexpr const char* kOutcomes[] = {"computed", "dropped", "failed"};
  for (int i = 0; i < 3; i++) {
    late_rows_[i] =
        &r.counter("gapless_late_rows_total",
                   "Rows whose request had ended: computed for nothing, or dropped by the device.",
                   std::string("outcome=\"") + kOutcomes[i] + "\"");
  }
  for (size_t i = 0; i < std::size(kHostPhases); i++) {
    host_seconds_[i] =
        &r.histogram("gapless_host_phase_seconds", "What the scheduler's thread spends on parts of its loop.",
                     {1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 0.1},
                     std::string("phase=\"") + kHostPhases[i]->text + "\"");
  }
}

SchedulerStats read_stats(SchedulerMetrics& m) {
  SchedulerStats s;
  s.running = int64_t(m.running.value());
  s.queued = int64_t(m.queued.value());
  s.kv_used_tokens = int64_t(m.kv_used_tokens.value());
  s.kv_peak_tokens = int64_t(m.kv_peak_tokens.value());
  s.kv_cached_tokens = int64_t(m.kv_cached_tokens.value());
  s.kv_total_tokens = int64_t(m.kv_total_tokens.value());
  s.prompt_tokens = int64_t(m.prompt_tokens.value());
  s.generation_tokens = int64_t(m.generation_tokens.value());
  s.cached_tokens = int64_t(m.cached_tokens.value());
  s.prefill_tokens = int64_t(m.prefill_tokens.value());
  for (int i = 0; i < 4; i++) s.steps += int64_t(m.steps(ForwardMode(i)).value());
  s.retractions = int64_t(m.retractions.value());
  s.recalls = int64_t(m.recalls.value());
  s.memory_stalls = int64_t(m.memory_stalls.value());
  s.wasted_rows = int64_t(m.late_rows(RowStatus::kOk).value());
  s.kv_healed = int64_t(m.kv_healed.value());
  return s;
}

}  // namespace gapless
