// One model being served: every part and every thread of an inference server but the network. Two engines fit
// in one process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/queue.h"
#include "device/op_profile.h"
#include "engine/detokenizer.h"
#include "engine/engine_api.h"
#include "engine/grammar_cache.h"
#include "engine/intake.h"
#include "engine/llguidance_backend.h"
#include "engine/loader.h"
#include "engine/loop_choice.h"
#include "engine/text_pool.h"
#include "engine/watchdog.h"
#include "scheduler/scheduler.h"
#include "worker/overlap_worker.h"

namespace gapless {

// Threads it creates: scheduler, detokenizer, text pool, and the device's own. See docs/internals.md.
class Engine : public EngineApi {
 public:
  // Loads the model on the calling thread (seconds), then starts the threads. An error says what to do.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  // Stops at once if drain() was not called: open requests get Failed(kUnavailable).
  ~Engine() override;

  RequestId submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) override;
  void abort(RequestId id) override;
  Status ready() const override;
  const ModelFacts& model() const override { return parts_.facts; }
  LoadStats load() const override;
  MetricsRegistry& metrics() override { return metrics_; }
  Tracer& tracer() override { return tracer_; }
  Result<ProfileReport> profile() const override;
  void reset_profile() override { op_profile_.reset(); }
  Result<std::vector<int32_t>> tokenize(const std::string& text, bool add_special,
                                        bool parse_special) const override;
  Result<std::string> detokenize(const std::vector<int32_t>& ids, bool skip_special) const override;
  Result<RenderedChat> render_chat(const ChatPrompt& chat) const override { return intake_.render(chat); }
  EventLoop event_loop() const override { return event_loop_; }
  bool switch_loop(EventLoop to, std::function<void()> switched) override;
  bool flush_cache(std::function<void(int64_t)> flushed) override {
    return inbox_.try_push(FlushCache{std::move(flushed)});
  }
  bool take_snapshot(std::function<void(SchedulerSnapshot&&)> taken) override {
    return inbox_.try_push(TakeSnapshot{std::move(taken)});
  }
  bool run_on_text_pool(std::function<void()> job) override { return text_pool_.run(std::move(job)); }

  // From now on ready() fails and submit() refuses; what runs goes on. Any thread.
  void begin_drain() { draining_ = true; }
  // Requests that have not got their last event. Any thread.
  size_t open_requests() const;
  // Aborts everything that is open and joins all threads. Not from an engine thread. Idempotent.
  void stop();

  const LoadedModel& parts() const { return parts_; }
  const LoopChoice& loop_at_start() const { return loop_; }
  const Scheduler& scheduler() const { return *scheduler_; }

 private:
  Engine(LoadedModel parts, const EngineOptions& options);
  void start();
  Status start_profile();
  KvAllocator::FreedHook page_freed_hook();
  void register_sim_metrics();
  void admit(RequestId id, const GenerateRequest& request, std::shared_ptr<ResponseSink> sink);
  void forget(RequestId id);

  // Where a request is, as far as abort() needs to know.
  enum class Stage : uint8_t { kText, kTextAborted, kScheduled };

  MetricsRegistry metrics_;
  Tracer tracer_;
  OpProfile op_profile_;      // before parts_, whose stream writes it
  std::optional<Roof> roof_;  // set: ops are measured
  LoadedModel parts_;
  OverlapWorker overlap_worker_;
  const LoopChoice loop_;
  std::atomic<EventLoop> event_loop_;
  LlguidanceBackend grammar_backend_;
  GrammarCache grammar_cache_;
  Intake intake_;
  Queue<SchedulerMessage> inbox_;
  std::unique_ptr<Detokenizer> detokenizer_;
  std::unique_ptr<Scheduler> scheduler_;
  mutable Watchdog watchdog_;
  TextPool text_pool_;
  std::atomic<RequestId> next_id_{1};
  std::atomic<bool> draining_{false}, stopped_{false};
  mutable std::mutex stages_mutex_;
  std::unordered_map<RequestId, Stage> stages_;
  NamedThread scheduler_thread_;
};

}  // namespace gapless
