// Decides what runs. Owns every Req, the queue, the running list, the prefix cache and the host side of the
// pools; one thread. A loop (event_loop.cc has both) is: ingest requests, compose a batch, launch it, process
// a result.
//
// Launched batches are frozen and named by id. What they name (slots, pages, locks) is given back when the
// last of them has completed; a request that ends or is retracted before that leaves its resources on the
// retiring list.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/queue.h"
#include "base/thread.h"
#include "base/trace.h"
#include "sampling/token_bytes.h"
#include "scheduler/phase.h"
#include "scheduler/schedule_batch.h"
#include "scheduler/schedule_policy.h"
#include "scheduler/scheduler_metrics.h"
#include "scheduler/snapshot.h"
#include "worker/model_worker.h"

namespace gapless {

// What get_next_batch_to_run decided.
struct BatchPlan {
  std::optional<ScheduleBatch> batch;
};

// A launched batch: its rows and the ticket of its result.
struct InFlight {
  uint64_t id;
  ScheduleBatch batch;
  PendingForward ticket;
};

// What a loop would have to wait for before its next step.
enum class LoopWait : uint8_t {
  kNothing,
  kRequests,          // idle
  kResult,            // of the batch in flight
  kResultOrRequests,  // whichever comes first
  kStopped,
};

class Scheduler {
 public:
  struct Deps {
    ModelWorkerClient& normal_worker;
    ModelWorkerClient& overlap_worker;  // may be the same
    TokenSink& sink;
    Queue<SchedulerMessage>& inbox;
    std::shared_ptr<const TokenBytes> token_bytes;
    MetricsRegistry& metrics;
    Tracer& tracer;
    KvAllocator::FreedHook on_page_freed;
  };
  // `config` has passed check_scheduler_config().
  Scheduler(const SchedulerConfig& config, Deps deps);
  ~Scheduler();

  // Runs the loop that is on, until the inbox is closed and everything in it has been answered. Sleeps while
  // there is nothing to do.
  void run(EventLoop loop);
  // The same up to the next wait: never blocks (kResult and kResultOrRequests: call again once the result is
  // there), so that a test can drive the scheduler, the forward side and the device from one thread.
  LoopWait step();
  void set_loop(EventLoop loop);  // before the first step

  // Any thread.
  SchedulerStats stats() const { return read_stats(metrics_); }

  // The conservation laws of pages, slots and locks; empty when they hold, else what is wrong. Scheduler
  // thread, between steps.
  std::string check_memory() const;

 private:
  friend class SchedulerTestPeer;

  // The two loops (event_loop.cc): what each does up to its next wait.
  LoopWait event_loop_normal();
  LoopWait event_loop_overlap();
  bool launch_next_batch(ModelWorkerClient& worker);
  void process_oldest_result();
  void note_wake(const InFlight& launched);
  LoopWait when_nothing_runs();
  void wait_for_result_or_requests();
  void switch_loop();

  // What the oldest batch in flight may emit where a grammar limits it (grammar_masks.cc).
  void send_sampling_info();
  RowMask fill_mask(const ScheduledRow& row, std::span<uint32_t> allowed);

  // A batch that waits behind another is taken back for those who have just arrived (recall.cc).
  void recall_for_newcomers(ModelWorkerClient& worker);
  bool may_join(const ScheduleBatch& batch) const;

  // Intake (scheduler.cc).
  void ingest_requests();
  void wait_for_requests();
  void handle(std::unique_ptr<Request> request);
  void handle(const AbortRequest& abort);
  void handle(FlushCache flush);
  void handle(SwitchLoop change);
  void handle(const TakeSnapshot& ask);
  void refuse(const Request& request, const Status& status);
  void flush_cache_when_drained();

  // What runs, for people who watch (snapshot.cc).
  SchedulerSnapshot snapshot();
  void list_requests(SchedulerSnapshot& snapshot) const;

  // Composition (scheduler.cc).
  BatchPlan get_next_batch_to_run();
  std::vector<Req*> decode_candidates() const;
  void get_new_batch_prefill(ScheduleBatch& batch, size_t decode_rows, int32_t reserved_pages, bool admit);
  void admit_waiting(ScheduleBatch& batch, PrefillAdder& adder);
  void on_admitted(Req& req);
  // Gives every row its page for this step. False when requests had to be retracted for it.
  bool update_running_batch(ScheduleBatch& batch, std::vector<Req*>& rows);

  // Memory for decoding (decode_memory.cc).
  bool memory_stall(const std::vector<Req*>& rows);
  int32_t kv_capacity(const Req& req) const;
  int32_t pages_needed(const std::vector<Req*>& rows) const;
  int32_t pages_needed_next(const std::vector<Req*>& rows) const;
  int32_t pages_arriving() const;
  static bool ends_in_flight(const Req& req);
  void retract_decode(std::vector<Req*>& rows);
  void retract_ahead(std::vector<Req*>& rows);
  template <class Fits>
  bool retract_until(std::vector<Req*>& rows, const Fits& fits);
  Req* retraction_victim() const;
  void retract(Req& req);

  InFlight run_batch(ScheduleBatch&& batch, size_t first_new_row, ModelWorkerClient& worker);
  void on_launch(const ScheduledRow& row);

  // Results (batch_result.cc).
  void process_batch_result(InFlight&& launched);
  void process_batch_result_prefill(const ScheduledRow& row, RowResult& result);
  void process_batch_result_decode(const ScheduledRow& row, RowResult& result);
  void on_late_result(const ScheduledRow& row, RowResult& result);
  void append_prompt_logprobs(Req& req, RowResult& result);
  void append_token(Req& req, RowResult& result);
  TokenDelta& add_delta(Req& req);
  void finish(Req& req, Finish finish, TokenDelta& delta);
  void release(Req& req);
  void give_back(const Req& req, int32_t kv_done, ReqResources held);
  void count_step(const ScheduleBatch& batch, const BatchResult& result);
  void on_batch_completed(const ScheduleBatch& batch, uint64_t id);
  void retire_finished();
  void send_deltas();

  // invariants.cc
  void on_idle();
  void heal_memory(const std::string& problem);
  std::string check_pages(std::vector<PageState>& owned) const;
  std::string check_requests() const;
  std::vector<int32_t> owned_slots() const;

  int32_t n_live() const { return int32_t(running_.size()) + (chunked_req_ ? 1 : 0); }
  template <class F>
  void for_each_live(const F& f) const {
    for (Req* req : running_) {
      if (req->admitted()) f(*req);
    }
    if (chunked_req_) f(*chunked_req_);
  }
  void update_gauges();
  using HostPhase = SchedulerMetrics::HostPhase;
  Phase phase(HostPhase phase);

  const SchedulerConfig config_;
  ModelWorkerClient &normal_worker_, &overlap_worker_;
  TokenSink& sink_;
  Queue<SchedulerMessage>& inbox_;
  const std::shared_ptr<const TokenBytes> token_bytes_;
  mutable SchedulerMetrics metrics_;
  TraceRing &trace_, &device_trace_;
  ThreadRole role_;

  KvMemory memory_;
  std::unordered_map<RequestId, std::unique_ptr<ReqGroup>> groups_;  // after memory_: handles go first
  struct Retiring {
    uint64_t last_batch_id;
    Req* req;         // lives on while a launched batch names it
    int32_t kv_done;  // positions of req->ids whose KV was written when it was released
    ReqResources held;
  };
  std::vector<Retiring> retiring_;

  std::vector<SchedulerMessage> messages_;  // taken from the inbox and not handled yet
  std::deque<Req*> waiting_;                // retracted requests in front, then in order of arrival
  std::vector<Req*> running_;       // kDecode, and those that finished since the last batch was composed
  Req* chunked_req_ = nullptr;      // kPrefill between two chunks
  std::vector<Req*> finished_;      // kFinished and not yet forgotten
  std::deque<InFlight> in_flight_;  // oldest first
  PagesBeingWritten writing_;
  std::vector<std::function<void(int64_t)>> flushes_;
  std::vector<SwitchLoop> switches_;  // nothing is launched until they are done
  EventLoop loop_ = EventLoop::kNormal;
  bool newcomers_ = false;   // arrived since the youngest batch was composed
  uint64_t stalled_by_ = 0;  // the batch whose result a memory stall waited for last
  std::vector<TokenDelta> deltas_;

  NewTokenRatio new_token_ratio_;
  std::mt19937_64 rng_;
  double last_step_ended_ = 0;  // on the device; 0: it has been idle since
  uint64_t next_batch_id_ = 1, next_arrival_ = 0;
  int32_t consecutive_prefill_ =
      0;  // prefill-only batches since the last one with decode rows, while such rows waited
};

}  // namespace gapless
