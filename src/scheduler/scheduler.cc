#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "base/trace_names.h"
#include "scheduler/validate.h"

namespace gapless {

Scheduler::Scheduler(const SchedulerConfig& config, Deps deps)
    : config_(config),
      normal_worker_(deps.normal_worker),
      overlap_worker_(deps.overlap_worker),
      sink_(deps.sink),
      inbox_(deps.inbox),
      token_bytes_(std::move(deps.token_bytes)),
      metrics_(deps.metrics),
      trace_(deps.tracer.ring(trace::kScheduler)),
      device_trace_(deps.tracer.ring(trace::kDevice)),
      memory_(config, std::move(deps.on_page_freed)),
      new_token_ratio_(config.schedule_conservativeness),
      rng_(config.random_seed) {
  CHECK_EQ(token_bytes_->size(), config.vocab_size);
  metrics_.kv_total_tokens.set(double(config.max_total_tokens));
}

Scheduler::~Scheduler() {
  CHECK(in_flight_.empty(), "a launched batch outlives the scheduler");
}

Phase Scheduler::phase(HostPhase phase) {
  return {trace_, *SchedulerMetrics::kHostPhases[size_t(phase)], metrics_.host_seconds(phase)};
}

void Scheduler::ingest_requests() {
  Phase ingest = phase(HostPhase::kIngest);
  inbox_.drain(false, messages_);
  if (messages_.empty()) return ingest.drop();
  ingest.set_args(messages_.size());
  for (SchedulerMessage& message : messages_) {
    std::visit([this](auto& m) { handle(std::move(m)); }, message);
  }
  messages_.clear();
  retire_finished();
  send_deltas();
}

void Scheduler::handle(std::unique_ptr<Request> request) {
  if (Status status = validate(config_, *request); !status.is_ok()) return refuse(*request, status);
  if (groups_.contains(request->id)) {
    return refuse(*request, Status::internal("request id {} is in use", request->id));
  }
  const int32_t idle = std::max(config_.max_running_requests - n_live(), 0);
  if (int64_t(waiting_.size()) >= int64_t(config_.max_queued_requests) + idle) {
    return refuse(*request, {StatusCode::kResourceExhausted,
                             fmt::format("{} requests are waiting, the limit is {} (--max-queued-requests)",
                                         waiting_.size(), config_.max_queued_requests)});
  }
  auto group = std::make_unique<ReqGroup>();
  group->request = std::move(request);
  for (int32_t choice = 0; choice < group->request->n; choice++) {
    group->choices.push_back(std::make_unique<Req>(*group, choice, next_arrival_++));
    waiting_.push_back(group->choices.back().get());
  }
  newcomers_ = true;
  group->open = group->request->n;
  const RequestId id = group->request->id;
  groups_.emplace(id, std::move(group));
}

void Scheduler::refuse(const Request& request, const Status& status) {
  metrics_.rejected.add();
  for (int32_t choice = 0; choice < std::max(request.n, 1); choice++) {
    TokenDelta& delta = deltas_.emplace_back();
    delta.id = request.id;
    delta.choice = choice;
    delta.first = true;
    delta.prompt_tokens = int32_t(request.prompt_ids.size());
    delta.finish = Finish{FinishReason::kError, {}, status};
  }
}

void Scheduler::handle(const AbortRequest& abort) {
  const auto it = groups_.find(abort.id);
  if (it == groups_.end()) return;  // it has just ended
  for (auto& req : it->second->choices) {
    if (req->state() == ReqState::kFinished) continue;
    finish(*req, {FinishReason::kAbort, {}, {StatusCode::kCancelled, "the request was aborted"}},
           add_delta(*req));
  }
}

void Scheduler::handle(FlushCache flush) {
  flushes_.push_back(std::move(flush.done));
}

void Scheduler::handle(SwitchLoop change) {
  switches_.push_back(std::move(change));
}

// While a flush is wanted nothing is admitted, so the requests that run end and the moment comes.
void Scheduler::flush_cache_when_drained() {
  if (flushes_.empty() || n_live() > 0 || !in_flight_.empty()) return;
  int64_t tokens = int64_t(memory_.tree.flush()) * config_.page_size;
  for (auto& done : std::exchange(flushes_, {})) {
    if (done) done(std::exchange(tokens, 0));
  }
}

BatchPlan Scheduler::get_next_batch_to_run() {
  Phase compose = phase(HostPhase::kCompose);
  flush_cache_when_drained();
  ScheduleBatch batch(config_.page_size);
  std::vector<Req*> rows = decode_candidates();
  if (config_.mixed_chunk) {
    if (memory_stall(rows)) return {};
    // Whoever was just sent back for memory, or is behind him in the queue, does not take it again in the
    // same pass.
    const bool undisturbed = update_running_batch(batch, rows);
    batch.set_admits(undisturbed);
    get_new_batch_prefill(batch, rows.size(), pages_needed_next(rows), undisturbed);
  } else {
    const bool prefill_turn = rows.empty() || consecutive_prefill_ < config_.max_consecutive_prefill;
    if (prefill_turn) get_new_batch_prefill(batch, 0, pages_needed(rows), true);
    if (batch.empty()) {
      if (memory_stall(rows)) return {};
      update_running_batch(batch, rows);
      // Everybody who decodes was sent back for memory: the turn goes to the prompt that is half done.
      if (rows.empty()) {
        batch.set_admits(false);
        get_new_batch_prefill(batch, 0, 0, false);
      }
    } else {
      consecutive_prefill_ += !rows.empty();
      rows.clear();
    }
  }
  if (!rows.empty()) consecutive_prefill_ = 0;
  batch.reserve_rows(rows.size());
  for (Req* req : rows) batch.add_decode(*req);
  if (batch.empty()) {
    CHECK(!in_flight_.empty() || (n_live() == 0 && waiting_.empty()),
          "{} requests run and {} wait, but nothing can be scheduled", n_live(), waiting_.size());
    return {};
  }
  compose.set_args(next_batch_id_, batch.rows().size(), batch.n_tokens());
  return {std::move(batch)};
}

std::vector<Req*> Scheduler::decode_candidates() const {
  std::vector<Req*> rows;
  rows.reserve(running_.size());
  for (Req* req : running_) {
    if (!req->launched_to_length()) rows.push_back(req);
  }
  return rows;
}

void Scheduler::get_new_batch_prefill(ScheduleBatch& batch, size_t decode_rows, int32_t reserved_pages,
                                      bool admit) {
  PrefillAdder::Budget budget{.reserved_pages = reserved_pages,
                              .expected_tokens = 0,
                              .decode_rows = int32_t(decode_rows),
                              .alone = n_live() == 0};
  double expected = 0;
  for_each_live([&](const Req& req) { expected += PrefillAdder::clipped_new_tokens(req); });
  budget.expected_tokens = int64_t(expected * new_token_ratio_.value());
  PrefillAdder adder(config_, memory_, writing_, budget, batch);
  if (chunked_req_) adder.add_chunked_req(*chunked_req_);
  if (admit && flushes_.empty() && !waiting_.empty()) admit_waiting(batch, adder);
}

void Scheduler::admit_waiting(ScheduleBatch& batch, PrefillAdder& adder) {
  const int32_t room = std::min(config_.max_running_requests - n_live(), memory_.rows.free_slots());
  if (room <= 0) return;
  const std::vector<Req*> order =
      calc_priority(waiting_, config_.policy, memory_.tree, rng_, size_t(room) + kMaxHeldPerPass);
  int32_t admitted = 0, held = 0;
  for (Req* req : order) {
    if (admitted == room || held == kMaxHeldPerPass) break;
    const AddResult result = adder.add_one_req(*req);
    if (result == AddResult::kNoToken || result == AddResult::kOther) {
      batch.set_admits(false);
      break;
    }
    held += result == AddResult::kHeld;
    if (result != AddResult::kAdded) continue;
    admitted++;
    on_admitted(*req);
  }
  if (admitted == 0) return;
  // The order holds every entry that was looked at, so those admitted are among as many at the front of the
  // queue.
  const auto end = waiting_.begin() + order.size();
  waiting_.erase(std::remove_if(waiting_.begin(), end, [](const Req* r) { return r->admitted(); }), end);
}

void Scheduler::on_admitted(Req& req) {
  if (!std::exchange(req.retracted, false)) {
    req.queue_seconds = std::chrono::duration<double>(Clock::now() - req.request().arrival).count();
    metrics_.queue_seconds.observe(req.queue_seconds);
  }
  if (req.group.cached_tokens >= 0) return;
  req.group.cached_tokens = req.kv_launched;
  CHECK(req.group.cached_tokens <= req.prompt_len);
  metrics_.prompt_tokens.add(req.prompt_len);
  metrics_.cached_tokens.add(req.group.cached_tokens);
}

// Rows before `first_new_row` belong to a batch that was recalled: they are launched already.
InFlight Scheduler::run_batch(ScheduleBatch&& batch, size_t first_new_row, ModelWorkerClient& worker) {
  Phase launch = phase(HostPhase::kLaunch);
  const uint64_t id = next_batch_id_++;
  launch.set_args(id, batch.rows().size(), batch.n_tokens());
  for (const ScheduledRow& row : batch.rows()) row.req->last_batch_id = id;
  for (const ScheduledRow& row : batch.rows().subspan(first_new_row)) on_launch(row);
  update_gauges();
  PendingForward ticket = worker.forward_batch_generation(batch.freeze(id));
  ticket.copy_done().on_set([this](const Status&) { inbox_.poke(); });
  return {id, std::move(batch), std::move(ticket)};
}

void Scheduler::on_launch(const ScheduledRow& row) {
  Req& req = *row.req;
  req.in_flight++;
  req.kv_launched = row.end_pos;
  req.launched_outputs += row.emits;
  if (!row.prefill) return;
  if (row.completes) {
    if (chunked_req_ == &req) chunked_req_ = nullptr;
    req.advance(ReqState::kDecode);
    running_.push_back(&req);
  } else {
    CHECK(!chunked_req_ || chunked_req_ == &req, "two requests are in the middle of their prompt");
    chunked_req_ = &req;
  }
}

void Scheduler::update_gauges() {
  const double page = config_.page_size;
  metrics_.running.set(n_live());
  metrics_.queued.set(double(waiting_.size()));
  metrics_.kv_cached_tokens.set(memory_.tree.total_pages() * page);
  metrics_.kv_evictable_tokens.set(memory_.tree.evictable_pages() * page);
  const double used = (memory_.allocator.total() - memory_.available_pages()) * page;
  metrics_.kv_used_tokens.set(used);
  metrics_.kv_peak_tokens.set(std::max(metrics_.kv_peak_tokens.value(), used));
  metrics_.new_token_ratio.set(new_token_ratio_.value());
}

}  // namespace gapless
