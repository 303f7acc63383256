#include "scheduler/sim_testing/rig.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "base/trace_names.h"
#include "model/sim/sim_model.h"
#include "scheduler/sim_testing/op_tap.h"
#include "worker/model_runner.h"

namespace gapless::sim_testing {
namespace {

constexpr int64_t kMaxSchedulerSteps = 50'000;

SimProfile profile_of(const Workload& w) {
  SimProfile profile = find_sim_profile("zero").value();
  profile.model.vocab_size = w.vocabulary.size;
  profile.model.context_length = w.config.context_length;
  return profile;
}

ModelRunnerOptions runner_options(const SchedulerConfig& c) {
  const int32_t prefill = std::max({c.max_prefill_tokens, c.chunked_prefill_size, c.context_length});
  return {.limits = {.max_rows = prefill + c.max_running_requests, .max_seqs = 2 * c.max_running_requests},
          .request_slots = c.request_slots(),
          .max_pages_per_request = c.max_pages_per_request(),
          .total_pages = c.max_total_pages(),
          .page_size = c.page_size,
          .kv_dtype = KvDtype::kF16,
          .eos_ids = c.eos_ids};
}

}  // namespace

// Steps that fail, counted. Where any do, every other one does after a request was sent back while it was
// launched.
struct Rig::Failing : RandomSimFaults {
  Failing(const Workload& w, bool threaded)
      : RandomSimFaults({.seed = w.seed,
                         .delay_probability = threaded ? 0.1 : 0,
                         .max_delay = std::chrono::microseconds(60),
                         .fail_probability = w.fail_probability}) {}
  Status failure(uint64_t step) override {
    Status status = RandomSimFaults::failure(step);
    if (std::exchange(likely, false) && step % 2 == 0)
      status = Status::internal("step {} failed by plan", step);
    failures += !status.is_ok();
    return status;
  }
  std::atomic<int64_t> failures{0};
  bool likely = false;  // stepped runs only
};

// What is between the scheduler and its workers: nothing, unless a fault is planted.
class Rig::Worker : public ModelWorkerClient {
 public:
  Worker(Rig& rig, ModelWorkerClient& worker) : rig_(rig), worker_(worker) {}
  PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override {
    rig_.at_launch();
    if (!rig_.fault_) return worker_.forward_batch_generation(std::move(batch));
    ModelWorkerBatch edited = *batch;
    rig_.fault_->edit(edited);
    return worker_.forward_batch_generation(Frozen(std::move(edited)));
  }

 private:
  Rig& rig_;
  ModelWorkerClient& worker_;
};

Rig::Rig(const Workload& workload, Drive drive, Fault* fault)
    : w_(workload),
      fault_(fault),
      threaded_(drive == Drive::kThreaded),
      random_(workload.seed ^ 0x5eed),
      failing_(std::make_shared<Failing>(workload, threaded_)),
      device_({.profile = profile_of(workload), .stepped = !threaded_, .faults = failing_}),
      model_(make_sim_model(device_.profile())) {
  CHECK(!fault || !threaded_, "planted faults are for stepped runs");
  Device* device = &device_;
  if (fault) device = (tap_ = std::make_unique<OpTap>(device_, *fault)).get();
  runner_ = ModelRunner::create(*device, *model_, table_, runner_options(w_.config)).value();
  model_worker_ = std::make_unique<ModelWorker>(*runner_);
  overlap_worker_ = std::make_unique<OverlapWorker>(*runner_, tracer_.ring(trace::kForward));
  normal_client_ = std::make_unique<Worker>(*this, *model_worker_);
  overlap_client_ = std::make_unique<Worker>(*this, *overlap_worker_);
  scheduler_ = std::make_unique<Scheduler>(
      w_.config, Scheduler::Deps{.normal_worker = *normal_client_,
                                 .overlap_worker = *overlap_client_,
                                 .sink = *this,
                                 .inbox = inbox_,
                                 .token_bytes = std::make_shared<TokenBytes>(w_.vocabulary.tokens),
                                 .metrics = metrics_,
                                 .tracer = tracer_,
                                 .on_page_freed = [this](int32_t page) { runner_->poison_page(page); }});
}

Rig::~Rig() = default;

// Cached pages that nobody uses may go at any moment, as if somebody had needed them.
void Rig::at_launch() {
  SchedulerTestPeer peer(*scheduler_);
  if (fault_) fault_->at_launch(peer);
  if (!random_.chance(w_.eviction_percent)) return;
  RadixCache& tree = peer.memory().tree;
  const int32_t most = tree.evictable_pages();
  if (most > 0) tree.evict(random_.chance(50) ? most : random_.between(1, most));
}

// --- in ---

void Rig::push(SchedulerMessage message) {
  CHECK(inbox_.try_push(std::move(message)), "the inbox is closed");
}

void Rig::send(const Happening& happening) {
  switch (happening.kind) {
    case Happening::Kind::kRequest: {
      auto request = std::make_unique<Request>(w_.requests[happening.request]);
      request->arrival = Clock::now();
      return push(std::move(request));
    }
    case Happening::Kind::kAbort: {
      const RequestId id = w_.requests[happening.request].id;
      aborted_.insert(id);
      new_aborts_.push_back(id);
      return push(AbortRequest{id});
    }
    case Happening::Kind::kFlush:
      flushes_sent_++;
      return push(FlushCache{[this](int64_t) { flushes_done_++; }});
    case Happening::Kind::kSwitch:
      switches_sent_++;
      return push(SwitchLoop{happening.to, [this] { switches_done_++; }});
  }
}

// --- out ---

void Rig::on_tokens(std::vector<TokenDelta> deltas) {
  expect(!deltas.empty(), "the sink is called for nothing");
  for (TokenDelta& delta : deltas) receive(delta);
  // Deltas are the last thing of a step, or of what came in.
  if (threaded_) check_memory();
}

void Rig::receive(TokenDelta& delta) {
  const std::pair key{delta.id, delta.choice};
  const bool known = received_.contains(key);
  Received& r = received_[key];
  expect(!r.finish, "request {}.{}: a delta after the last one", delta.id, delta.choice);
  expect(delta.first == !known, "request {}.{}: first {}", delta.id, delta.choice, delta.first);
  expect(delta.token || delta.finish, "request {}.{}: an empty delta", delta.id, delta.choice);
  expect(delta.visible_bytes >= r.visible_bytes, "request {}.{}: {} bytes were shown, now {}", delta.id,
         delta.choice, r.visible_bytes, delta.visible_bytes);
  r.visible_bytes = delta.visible_bytes;
  if (delta.first) {
    r.prompt_tokens = delta.prompt_tokens;
    r.cached_tokens = delta.cached_tokens;
    r.prompt_logprobs = std::move(delta.prompt_logprobs);
  }
  if (delta.token) r.tokens.push_back({delta.token->id, delta.token->logprob, std::move(delta.token->top)});
  r.finish = std::move(delta.finish);
}

void Rig::check_memory() {
  const std::string problem = scheduler_->check_memory();
  expect(problem.empty(), "{}", problem);
}

// --- driving ---

std::string Rig::run_stepped() {
  scheduler_->set_loop(w_.loop);
  Random random(w_.seed ^ 0x0ddba11);
  const std::vector<int32_t> speeds{1, 4, 16};
  const std::vector<int32_t> weights{random.one_of(speeds), random.one_of(speeds), random.one_of(speeds)};
  size_t next = 0;
  for (int64_t tick = 0; last_wait_ != LoopWait::kStopped; tick++) {
    while (next < w_.happenings.size() && w_.happenings[next].at <= tick) send(w_.happenings[next++]);
    if (!advance(random, weights)) {
      if (next < w_.happenings.size()) {
        tick = std::max(tick, w_.happenings[next].at - 1);
      } else {
        expect(!inbox_.closed(), "nothing moves any more");
        inbox_.close();
      }
    }
    expect(scheduler_steps_ < kMaxSchedulerSteps, "never ends");
    if (!error_.empty()) break;
  }
  if (error_.empty()) check_end();
  return error_;
}

// One of the three does what it can; when that is nothing, another. False: none can.
bool Rig::advance(Random& random, const std::vector<int32_t>& weights) {
  int32_t at = random.below(weights[0] + weights[1] + weights[2]), who = 0;
  while (at >= weights[size_t(who)]) at -= weights[size_t(who++)];
  for (int32_t i = 0; i < 3; i++, who = (who + 1) % 3) {
    if (who == 0 && scheduler_can_step()) {
      step_scheduler();
      if (!error_.empty() || last_wait_ == LoopWait::kNothing || last_wait_ == LoopWait::kResult) return true;
      if (last_wait_ == LoopWait::kStopped) return true;
    }
    if (who == 1 && overlap_worker_->forward_one()) return true;
    if (who == 2 && device_.advance()) return true;
  }
  return inbox_.size() > 0;
}

// The normal loop waits for its result within the step.
bool Rig::scheduler_can_step() const {
  const SchedulerTestPeer peer(*scheduler_);
  return peer.loop() == EventLoop::kOverlap || peer.in_flight().empty() ||
         peer.in_flight().front().ticket.copy_done().ready();
}

void Rig::step_scheduler() {
  SchedulerTestPeer peer(*scheduler_);
  std::vector<std::pair<RequestId, int32_t>> failing;
  const uint64_t front = peer.in_flight().empty() ? 0 : peer.in_flight().front().id;
  if (front != 0) failing = failing_choices(peer.in_flight().front());
  if (fault_) fault_->before_step(peer);
  const int64_t retractions = scheduler_->stats().retractions;
  last_wait_ = scheduler_->step();
  scheduler_steps_++;
  if (w_.fail_probability > 0 && scheduler_->stats().retractions > retractions) failing_->likely = true;
  if (fault_) fault_->after_step(peer);
  if (peer.in_flight().empty() || peer.in_flight().front().id != front) {
    failed_.insert(failing.begin(), failing.end());
  }
  check_memory();
  if (inbox_.size() > 0) return;
  // Once an abort has been taken in, its request has had its last delta, whatever it was doing.
  for (RequestId id : std::exchange(new_aborts_, {})) {
    for (int32_t choice = 0; choice < w_.requests[id - 1].n; choice++) {
      const auto got = received_.find({id, choice});
      expect(got != received_.end() && got->second.finish, "request {}.{} was aborted and goes on", id,
             choice);
    }
  }
}

// Choices that the result of this batch will end, because its step failed: those whose admission the row
// still belongs to.
std::vector<std::pair<RequestId, int32_t>> Rig::failing_choices(const InFlight& launched) const {
  std::vector<std::pair<RequestId, int32_t>> choices;
  Event& copied = launched.ticket.copy_done();
  if (!copied.ready() || copied.wait().is_ok()) return choices;
  for (const ScheduledRow& row : launched.batch.rows()) {
    if (row.req->admitted() && row.req->epoch == row.epoch)
      choices.emplace_back(row.req->request().id, row.req->choice);
  }
  return choices;
}

std::string Rig::run_threaded() {
  overlap_worker_->start();
  NamedThread scheduler("scheduler", [this] { scheduler_->run(w_.loop); });
  Random random(w_.seed ^ 0x7ead);
  for (const Happening& happening : w_.happenings) {
    if (random.chance(30)) std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
    send(happening);
  }
  inbox_.close();
  scheduler.join();
  if (error_.empty()) check_end();
  return error_;
}

// --- afterwards ---

void Rig::check_end() {
  check_memory();
  const SchedulerStats s = scheduler_->stats();
  expect(s.kv_healed == 0, "{} pages or slots had to be healed", s.kv_healed);
  SchedulerTestPeer peer(*scheduler_);
  expect(s.running == 0 && s.queued == 0, "{} requests run and {} wait at the end", s.running, s.queued);
  const KvMemory& memory = peer.memory();
  expect(memory.rows.used_slots() == 0, "{} slots are taken at the end", memory.rows.used_slots());
  expect(memory.available_pages() == memory.allocator.total(), "{} of {} pages are there at the end",
         memory.available_pages(), memory.allocator.total());
  expect(flushes_done_ == flushes_sent_, "{} of {} flushes were answered", flushes_done_, flushes_sent_);
  expect(switches_done_ == switches_sent_, "{} of {} switches were answered", switches_done_, switches_sent_);
  for (size_t i = 0; i < w_.requests.size(); i++) {
    for (int32_t choice = 0; choice < w_.requests[i].n; choice++) check_answer(i, choice);
  }
}

void Rig::check_answer(size_t request, int32_t choice) {
  const Request& r = w_.requests[request];
  const Answer& want = w_.answers[request][size_t(choice)];
  const std::string who = fmt::format("request {}.{}", r.id, choice);
  const auto found = received_.find({r.id, choice});
  if (found == received_.end() || !found->second.finish) return expect(false, "{} never ended", who);
  const Received& got = found->second;
  const FinishReason reason = got.finish->reason;
  expect(got.prompt_tokens == int32_t(r.prompt_ids.size()), "{}: {} prompt tokens", who, got.prompt_tokens);
  expect(got.cached_tokens >= 0 && got.cached_tokens <= got.prompt_tokens, "{}: {} cached tokens", who,
         got.cached_tokens);
  expect(got.tokens.size() <= want.tokens.size(), "{}: {} tokens instead of {}", who, got.tokens.size(),
         want.tokens.size());
  check_tokens(who, got, want, r);
  const bool failed = failed_.contains({r.id, choice});
  if (reason == FinishReason::kAbort) return expect(aborted_.contains(r.id), "{} ended by an abort", who);
  if (reason == FinishReason::kError) {
    const bool may = threaded_ ? failing_->failures > 0 : failed;
    return expect(may, "{} failed: {}", who, got.finish->status.message());
  }
  expect(!failed, "{} outlived its failed step", who);
  expect(reason == want.reason && got.finish->matched == want.matched, "{}: finish {} instead of {}", who,
         int(reason), int(want.reason));
  expect(got.tokens.size() == want.tokens.size(), "{}: {} tokens instead of {}", who, got.tokens.size(),
         want.tokens.size());
  expect(got.visible_bytes == want.visible_bytes, "{}: {} visible bytes instead of {}", who,
         got.visible_bytes, want.visible_bytes);
  expect(got.prompt_logprobs.size() == want.prompt_logprobs.size(), "{}: {} prompt logprobs", who,
         got.prompt_logprobs.size());
}

void Rig::check_tokens(const std::string& who, const Received& got, const Answer& want, const Request& r) {
  const auto same = [&](const auto& a, const ExpectedToken& b) {
    return a.id == b.id && std::bit_cast<uint32_t>(a.logprob) == std::bit_cast<uint32_t>(b.logprob) &&
           a.top == b.top;
  };
  for (size_t i = 0; i < std::min(got.tokens.size(), want.tokens.size()); i++) {
    const ExpectedToken &a = got.tokens[i], &b = want.tokens[i];
    expect(a.id == b.id, "{}: token {} is {} instead of {}", who, i, a.id, b.id);
    expect(r.params.top_logprobs < 0 || same(a, b), "{}: logprob {} is {} instead of {}", who, i, a.logprob,
           b.logprob);
  }
  for (size_t i = 0; i < std::min(got.prompt_logprobs.size(), want.prompt_logprobs.size()); i++)
    expect(same(got.prompt_logprobs[i], want.prompt_logprobs[i]), "{}: prompt logprob {} is {} instead of {}",
           who, i, got.prompt_logprobs[i].logprob, want.prompt_logprobs[i].logprob);
}

// --- coverage ---

Coverage Rig::coverage() const {
  const SchedulerStats s = scheduler_->stats();
  return {.steps = s.steps,
          .recalls = s.recalls,
          .retractions = s.retractions,
          .memory_stalls = s.memory_stalls,
          .cached_tokens = s.cached_tokens,
          .dropped_rows = SchedulerTestPeer(*scheduler_).dropped_rows(),
          .wasted_rows = s.wasted_rows,
          .failed_steps = failing_->failures,
          .switches = switches_done_,
          .flushes = flushes_done_,
          .aborted = int64_t(aborted_.size())};
}

Coverage& Coverage::operator+=(const Coverage& o) {
  steps += o.steps;
  recalls += o.recalls;
  retractions += o.retractions;
  memory_stalls += o.memory_stalls;
  cached_tokens += o.cached_tokens;
  dropped_rows += o.dropped_rows;
  wasted_rows += o.wasted_rows;
  failed_steps += o.failed_steps;
  switches += o.switches;
  flushes += o.flushes;
  aborted += o.aborted;
  return *this;
}

std::string Coverage::text() const {
  return fmt::format(
      "{} steps, {} recalls, {} retractions, {} memory stalls, {} cached tokens, {} dropped and {} wasted "
      "rows, {} failed steps, {} switches, {} flushes, {} aborted",
      steps, recalls, retractions, memory_stalls, cached_tokens, dropped_rows, wasted_rows, failed_steps,
      switches, flushes, aborted);
}

}  // namespace gapless::sim_testing
