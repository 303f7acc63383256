#include "engine/engine.h"

#include <future>
#include <random>

#include "base/log.h"
#include "base/trace_names.h"
#include "device/sim/sim_device.h"

namespace gapless {
namespace {

// Texts waiting to be tokenized. The scheduler has its own limit; this one only bounds memory when texts
// arrive faster than they can be tokenized.
constexpr size_t kMaxQueuedTexts = 4096;
constexpr size_t kCachedGrammars = 64;

uint64_t random_seed() {
  thread_local std::mt19937_64 generator{(uint64_t(std::random_device{}()) << 32) | std::random_device{}()};
  return generator();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  ASSIGN_OR_RETURN(LoadedModel parts, load_parts(options));
  std::unique_ptr<Engine> engine(new Engine(std::move(parts), options));
  if (options.profile) {
    RETURN_IF_ERROR(engine->start_profile());
  }
  engine->start();
  return engine;
}

Engine::Engine(LoadedModel parts, const EngineOptions& options)
    : parts_(std::move(parts)),
      overlap_worker_(*parts_.runner, tracer_.ring(trace::kForward)),
      loop_(choose_loop(options)),
      event_loop_(loop_.loop),
      grammar_backend_(parts_.tokenizer),
      grammar_cache_(grammar_backend_, kCachedGrammars),
      intake_(*parts_.tokenizer, parts_.chat_template.get(), grammar_cache_, parts_.sizing.scheduler),
      text_pool_(options.text_threads, kMaxQueuedTexts) {}

Engine::~Engine() {
  stop();
}

Status Engine::start_profile() {
  if (!parts_.runner->set_profile(&op_profile_))
    return Status::invalid("--profile: the device {} does not measure its ops", parts_.device->name())
        .with_error_code(kUsageErrorCode);
  roof_ = measure_roof(parts_.threads.threads);
  return {};
}

Result<ProfileReport> Engine::profile() const {
  if (!roof_) return Status::invalid("this server measures no ops; start it with --profile");
  const std::vector<StepTotals> totals = op_profile_.totals();
  return ProfileReport{profile_text(totals, *roof_), profile_json(totals, *roof_)};
}

// A device that looks for bugs spoils pages the moment the scheduler gives them up.
KvAllocator::FreedHook Engine::page_freed_hook() {
  if (!parts_.device->poisons()) return {};
  return [this](int32_t page) { parts_.runner->poison_page(page); };
}

// How far the times of a simulated device can be believed.
void Engine::register_sim_metrics() {
  const auto* sim = dynamic_cast<const SimDevice*>(parts_.device.get());
  if (!sim) return;
  metrics_.counter_read_from("gapless_sim_steps_total", "Steps of the simulated device.",
                             [sim] { return double(sim->stats().steps); });
  metrics_.counter_read_from("gapless_sim_late_steps_total",
                             "Of those, steps that took this host longer than the simulated device.",
                             [sim] { return double(sim->stats().overruns); });
}

void Engine::start() {
  register_sim_metrics();
  metrics_.gauge("gapless_kv_total_bytes", "Memory of the KV pool, committed as it is used.")
      .set(double(parts_.sizing.kv_bytes));
  metrics_.gauge("gapless_max_running_requests", "Choices that may be computed at the same time.")
      .set(double(parts_.sizing.scheduler.max_running_requests));
  overlap_worker_.start();
  detokenizer_ =
      std::make_unique<Detokenizer>(parts_.tokenizer->token_bytes(), tracer_.ring(trace::kDetokenizer),
                                    [this](RequestId id) { forget(id); });
  scheduler_ = std::make_unique<Scheduler>(
      parts_.sizing.scheduler,
      Scheduler::Deps{.normal_worker = *parts_.worker,
                      .overlap_worker = overlap_worker_,
                      .sink = *detokenizer_,
                      .inbox = inbox_,
                      .token_bytes = {parts_.tokenizer, &parts_.tokenizer->token_bytes()},
                      .metrics = metrics_,
                      .tracer = tracer_,
                      .on_page_freed = page_freed_hook()});
  scheduler_thread_ = NamedThread("scheduler", [this] { scheduler_->run(loop_.loop); });
}

Status Engine::ready() const {
  if (draining_) return Status(StatusCode::kUnavailable, "the server is shutting down");
  return watchdog_.check(scheduler_->stats());
}

LoadStats Engine::load() const {
  const SchedulerStats s = scheduler_->stats();
  return {.running = int32_t(s.running),
          .queued = int32_t(s.queued),
          .kv_tokens_total = s.kv_total_tokens,
          .kv_tokens_used = s.kv_used_tokens,
          .kv_tokens_cached = s.kv_cached_tokens};
}

RequestId Engine::submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) {
  const RequestId id = next_id_++;
  {
    std::lock_guard lock(stages_mutex_);
    stages_[id] = Stage::kText;
  }
  if (const Status status = ready(); !status.is_ok()) {
    detokenizer_->refuse(id, std::move(sink), status);
    return id;
  }
  auto shared = std::make_shared<GenerateRequest>(std::move(request));
  const bool taken = text_pool_.run([this, id, shared, sink] { admit(id, *shared, sink); });
  if (!taken) {
    detokenizer_->refuse(
        id, std::move(sink),
        Status(StatusCode::kResourceExhausted,
               fmt::format("{} prompts are waiting to be tokenized: try again later", kMaxQueuedTexts)));
  }
  return id;
}

// Text pool. The detokenizer learns of the request before the scheduler does, so no token can come before
// Accepted.
void Engine::admit(RequestId id, const GenerateRequest& request, std::shared_ptr<ResponseSink> sink) {
  Result<Intake::Admitted> admitted = intake_.admit(id, request, random_seed());
  Status status = admitted.status();
  if (status.is_ok()) {
    // In one piece: an abort that came in between would reach the scheduler before the request it is meant
    // for.
    std::lock_guard lock(stages_mutex_);
    Stage& stage = stages_.at(id);
    if (stage == Stage::kText) {
      stage = Stage::kScheduled;
      detokenizer_->open({.id = id,
                          .sink = std::move(sink),
                          .n = request.n,
                          .skip_special_tokens = request.skip_special_tokens,
                          .accepted = std::move(admitted->accepted)});
      inbox_.try_push(std::move(admitted->request));
      return;
    }
    status = Status(StatusCode::kCancelled, "the request was aborted");
  }
  detokenizer_->refuse(id, std::move(sink), std::move(status));
}

void Engine::abort(RequestId id) {
  std::lock_guard lock(stages_mutex_);
  const auto it = stages_.find(id);
  if (it == stages_.end()) return;
  if (it->second == Stage::kScheduled) {
    inbox_.try_push(AbortRequest{id});
  } else {
    it->second = Stage::kTextAborted;
  }
}

void Engine::forget(RequestId id) {
  std::lock_guard lock(stages_mutex_);
  stages_.erase(id);
}

size_t Engine::open_requests() const {
  std::lock_guard lock(stages_mutex_);
  return stages_.size();
}

Result<std::vector<int32_t>> Engine::tokenize(const std::string& text, bool add_special,
                                              bool parse_special) const {
  return parts_.tokenizer->encode(text, {.add_special = add_special, .parse_special = parse_special});
}

Result<std::string> Engine::detokenize(const std::vector<int32_t>& ids, bool skip_special) const {
  for (int32_t id : ids)
    if (id < 0 || id >= parts_.tokenizer->vocab_size())
      return Status::invalid("token id {} is outside the vocabulary of {}", id,
                             parts_.tokenizer->vocab_size())
          .with_param("tokens");
  return parts_.tokenizer->decode(ids, skip_special);
}

bool Engine::switch_loop(EventLoop to, std::function<void()> switched) {
  return inbox_.try_push(SwitchLoop{to, [this, to, switched = std::move(switched)] {
                                      event_loop_ = to;
                                      switched();
                                    }});
}

int64_t flush_cache_and_wait(EngineApi& engine) {
  auto done = std::make_shared<std::promise<int64_t>>();
  std::future<int64_t> dropped = done->get_future();
  return engine.flush_cache([done](int64_t tokens) { done->set_value(tokens); }) ? dropped.get() : -1;
}

bool switch_loop_and_wait(EngineApi& engine, EventLoop to, std::function<void()> switched) {
  auto done = std::make_shared<std::promise<void>>();
  if (!engine.switch_loop(to, [done, switched = std::move(switched)] {
        switched();
        done->set_value();
      })) {
    return false;
  }
  done->get_future().wait();
  return true;
}

void Engine::stop() {
  if (stopped_.exchange(true)) return;
  begin_drain();
  text_pool_.close();
  std::vector<RequestId> open;
  {
    std::lock_guard lock(stages_mutex_);
    for (const auto& [id, stage] : stages_) open.push_back(id);
  }
  for (RequestId id : open) abort(id);
  inbox_.close();
  scheduler_thread_.join();
  if (detokenizer_) detokenizer_->close();
}

}  // namespace gapless
