#include "worker/model_runner.h"

#include <algorithm>

#include "worker/pooling.h"

namespace gapless {
namespace {

// Logits of a group of rows stay below this; a vocabulary of 262k still gets 48 rows, so a decode step of 32
// reads the head once.
constexpr int64_t kLogitBytes = 50 << 20;
constexpr int32_t kMaxLogitGroup = 64;

class Launch : public LaunchState {
 public:
  using LaunchState::LaunchState;
  // Forward thread, before the step is queued.
  void bind(Step& step) { step_ = &step; }
  Step& step() const { return *step_; }

  // Forward thread: the first step of a batch with masked rows, until the second one is queued.
  std::shared_ptr<Event> first_step;

  BatchResult collect(Status status) override {
    const ModelWorkerBatch& batch = **step_->batch;
    BatchResult result{.batch_id = batch_id, .status = std::move(status), .rows = {}, .times = {}};
    result.rows.resize(batch.rows.size());
    if (!result.status.is_ok()) {
      for (RowResult& r : result.rows) r.status = RowStatus::kFailed;
      return result;
    }
    const float* embedding = step_->host_embeddings;
    for (size_t i = 0; i < batch.rows.size(); i++) {
      collect_row(batch.rows[i], step_->host_places[i], result.rows[i]);
      if (!batch.rows[i].embeds) continue;
      result.rows[i].embedding.assign(embedding, embedding + step_->limits.embedding_dim);
      embedding += step_->limits.embedding_dim;
    }
    return result;
  }

 private:
  void collect_row(const BatchRow& row, const Step::RowPlace& place, RowResult& r) const {
    r.status = place.status;
    if (place.status != RowStatus::kOk) return;
    const SampleResult* at = step_->host_results + place.first_target;
    for (int32_t t = 0; t < row.n_targets; t++, at++) {
      r.prompt_logprobs.push_back(at->logprob);
      r.prompt_top.emplace_back(at->top, at->top + at->n_top);
    }
    if (!row.emits) return;
    at = step_->host_results + place.sampled;
    r.token = at->token;
    r.logprob = at->logprob;
    r.top.assign(at->top, at->top + at->n_top);
  }

  Step* step_ = nullptr;  // its place in the ring is reused only after the result was taken
};

}  // namespace

ModelRunner::ModelRunner(Device& device, Model& model, const OpTable& table, ModelRunnerOptions options)
    : device_(device), model_(model), table_(table), options_(std::move(options)) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(Device& device, Model& model, const OpTable& table,
                                                         ModelRunnerOptions options) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(device, model, table, std::move(options)));
  RETURN_IF_ERROR(runner->allocate());
  return runner;
}

ModelRunner::~ModelRunner() {
  if (!stream_) return;
  stream_->synchronize();
  for (int32_t s = 0; s < slots_.n_slots; s++) SlotStateDeleter{}(slots_.states[s]);
}

Status ModelRunner::allocate() {
  const ModelConfig& c = model_.config();
  const ModelRunnerOptions& o = options_;
  kv_layer_stride_ =
      int64_t(o.total_pages + 1) * o.page_size * c.n_kv_heads * kv_row_bytes(o.kv_dtype, c.head_dim);
  ASSIGN_OR_RETURN(kv_memory_,
                   device_.allocate(size_t(2 * kv_layer_stride_ * c.n_layers), MemoryKind::kDevice));

  slots_.n_slots = o.request_slots;
  slots_.ld_page_table = o.max_pages_per_request;
  ASSIGN_OR_RETURN(page_table_,
                   device_.allocate(size_t(o.request_slots) * o.max_pages_per_request * sizeof(int32_t),
                                    MemoryKind::kDevice));
  ASSIGN_OR_RETURN(future_map_, device_.allocate(o.request_slots * sizeof(FutureEntry), MemoryKind::kDevice));
  ASSIGN_OR_RETURN(slot_states_, device_.allocate(o.request_slots * sizeof(void*), MemoryKind::kDevice));
  slots_.page_table = page_table_.as<int32_t>();
  slots_.future_map = future_map_.as<FutureEntry>();
  slots_.ld_pooled = c.embedding_dim;
  if (c.embedding_dim > 0) {
    ASSIGN_OR_RETURN(pooled_, device_.allocate(size_t(o.request_slots) * c.embedding_dim * sizeof(float),
                                               MemoryKind::kDevice));
    slots_.pooled = pooled_.as<float>();
  }
  slots_.states = slot_states_.as<SlotState*>();  // zeroed: all null
  std::fill_n(slots_.future_map, o.request_slots, FutureEntry{});

  ld_logits_ = (c.vocab_size + 15) / 16 * 16 + 16;  // + 16: row strides that are multiples of 4 KB collide in
                                                    // the cache (measured: 587 against 702 GOP/s)
  logit_group_ =
      std::clamp(int32_t(kLogitBytes / (ld_logits_ * 4)), 1, std::min(kMaxLogitGroup, o.limits.max_rows));
  ASSIGN_OR_RETURN(logits_,
                   device_.allocate(size_t(logit_group_) * ld_logits_ * sizeof(float), MemoryKind::kDevice));
  ASSIGN_OR_RETURN(sampler_, Sampler::create(device_, c.vocab_size, o.eos_ids, logit_group_));
  for (auto& place : ring_) {
    ASSIGN_OR_RETURN(place, Step::create(device_, {o.limits.max_rows, o.limits.max_seqs, c.embedding_dim}));
  }
  stream_ = device_.create_stream();
  return model_.reserve(device_, o.limits.max_rows);
}

KvView ModelRunner::kv_view() const {
  std::byte* k = kv_memory_.as<std::byte>();
  return {.k = k,
          .v = k + kv_layer_stride_ * model_.config().n_layers,
          .layer_stride = kv_layer_stride_,
          .dtype = options_.kv_dtype,
          .page_size = options_.page_size,
          .page_table = slots_.page_table,
          .ld_page_table = slots_.ld_page_table};
}

void ModelRunner::poison_page(int32_t page) {
  if (!device_.poisons()) return;
  const ModelConfig& c = model_.config();
  const KvView kv = kv_view();
  const int64_t page_bytes = kv.layer_stride / (options_.total_pages + 1);
  for (int32_t l = 0; l < c.n_layers; l++)
    for (std::byte* layers : {kv.k, kv.v})
      device_.poison(layers + l * kv.layer_stride + page * page_bytes, size_t(page_bytes));
}

// A wrong batch is a bug of the scheduler: say which, before the device reads it.
void ModelRunner::check_batch(const ModelWorkerBatch& batch) const {
  CHECK_LE(int64_t(batch.rows.size()), int64_t(options_.limits.max_seqs));
  CHECK_LE(int64_t(batch.input_ids.size()), int64_t(options_.limits.max_rows));
  int64_t tokens = 0;
  for (const BatchRow& r : batch.rows) {
    CHECK(r.slot > kDumpSlot && r.slot < options_.request_slots, "slot {}", r.slot);
    const int32_t first_id = batch.input_ids[r.input_begin];
    CHECK(!is_placeholder(first_id) || placeholder_slot(first_id) == r.slot, "slot {} reads the token of {}",
          r.slot, placeholder_slot(first_id));
    CHECK(r.n_tokens > 0 && r.input_begin + r.n_tokens <= int32_t(batch.input_ids.size()), "tokens {}",
          r.n_tokens);
    CHECK_LE(r.start_pos + r.n_tokens, options_.max_pages_per_request * options_.page_size);
    CHECK(r.n_targets == 0 || r.prompt_logprob_begin + r.n_targets <= r.start_pos + r.n_tokens, "targets {}",
          r.n_targets);
    CHECK(r.n_pooled == 0 || (slots_.pooled && r.n_pooled <= r.n_tokens && !r.emits && r.n_targets == 0 &&
                              r.pool_begin <= r.start_pos + r.n_tokens - r.n_pooled),
          "slot {} pools {} of {} tokens", r.slot, r.n_pooled, r.n_tokens);
    CHECK(r.emits || !r.masked, "a row of slot {} waits for a mask and emits nothing", r.slot);
    tokens += r.n_tokens;
  }
  CHECK_EQ(tokens, int64_t(batch.input_ids.size()));
  const int32_t vocab = model_.config().vocab_size;
  for (int32_t id : batch.input_ids) CHECK_LT(id, vocab);
  for (const PageWrite& w : batch.page_writes)
    CHECK(w.slot < options_.request_slots && w.index < options_.max_pages_per_request &&
              w.page <= options_.total_pages,
          "page {} at ({}, {})", w.page, w.slot, w.index);
}

std::shared_ptr<LaunchState> ModelRunner::new_launch(const ModelWorkerBatch& batch) {
  return std::make_shared<Launch>(batch.id);
}

// A recalled launch leaves its place: its queued ops read nothing of it.
size_t ModelRunner::next_place() {
  const LaunchState* last = ring_launches_[last_place_].get();
  if (!last || !last->recalled()) last_place_ = (last_place_ + 1) % ring_.size();
  return last_place_;
}

void ModelRunner::launch(std::shared_ptr<LaunchState> state, Frozen<ModelWorkerBatch> batch) {
  if (const auto* last = static_cast<const Launch*>(ring_launches_[last_place_].get()))
    CHECK(!last->first_step || last->recalled(), "launch {} while rows of {} wait for sampling information",
          batch->id, last->batch_id);
  const size_t at = next_place();
  if (const LaunchState* former = ring_launches_[at].get())
    CHECK(former->recalled() || former->collected, "launch {} while the result of {} was not taken",
          batch->id, former->batch_id);
  check_batch(*batch);
  Step& step = *ring_[at];
  step.reset(std::move(batch), *sampler_);
  ring_launches_[at] = state;
  auto& launch = static_cast<Launch&>(*state);
  launch.bind(step);

  std::unique_ptr<OpList> ops = stream_->new_ops();
  ops->tag = step.tag();
  push_first_step(*ops, step, launch);
  const std::shared_ptr<Event> done = stream_->submit(std::move(ops));
  // The callback also keeps the launch alive until its step is over, recalled or not.
  if (step.masked_rows.bound > 0) {
    launch.first_step = done;
    done->on_set([state = std::move(state)](const Status&) {});
  } else {
    done->on_set([state = std::move(state), event = done.get()](const Status& status) {
      state->copy_done.set(status, event->times());
    });
  }
}

void ModelRunner::sample_masked_rows(std::shared_ptr<LaunchState> state, std::optional<SamplingInfo> info) {
  if (state->recalled()) return;
  auto& launch = static_cast<Launch&>(*state);
  CHECK(launch.first_step && ring_launches_[last_place_] == state, "no row of batch {} waits",
        launch.batch_id);
  Step& step = launch.step();
  const size_t rows = size_t(step.masked_rows.bound), words = mask_words(model_.config().vocab_size);
  step.info = info ? std::move(*info) : SamplingInfo{std::vector(rows, RowMask::kMissing), {}};
  CHECK_EQ(step.info.rows.size(), rows);
  if (std::ranges::count(step.info.rows, RowMask::kAllowed) > 0)
    CHECK_EQ(step.info.allowed.size(), rows * words);

  std::unique_ptr<OpList> ops = stream_->new_ops();
  ops->tag = step.tag();
  push_second_step(*ops, step, launch);
  const std::shared_ptr<Event> done = stream_->submit(std::move(ops));
  done->on_set([state = std::move(state), first = std::exchange(launch.first_step, nullptr),
                event = done.get()](const Status& status) {
    const Status first_status = first->wait();  // ready: it came before
    const StepTimes begin = first->times(), end = event->times();
    state->copy_done.set(first_status.is_ok() ? status : first_status,
                         {.submitted = begin.submitted,
                          .started = begin.started,
                          .ended = end.ended,
                          .stood_still = std::max(end.started - begin.ended, 0.0)});
  });
}

TakeParams ModelRunner::take_params(LaunchState& launch) {
  return {.launch = &launch,
          .step = &static_cast<Launch&>(launch).step(),
          .slots = slots_,
          .sampler = sampler_.get()};
}

// The output head of masked rows is computed while their masks are made, as far as the logits have room;
// where they have room for all rows, in one pass over its weights.
void ModelRunner::push_first_step(OpList& ops, Step& step, LaunchState& launch) {
  const TakeParams take = take_params(launch);
  push_take(ops, take);
  model_.forward(ops, table_, step.inputs(step.free_rows), kv_view());
  if (step.pooled_rows.bound > 0)
    push_pool(ops, step, slots_, model_.hidden_states(ops, table_, step.inputs(step.pooled_rows)));
  const bool one_head = step.masked_rows.bound > 0 && has_one_head(step);
  if (one_head) push_head(ops, step, step.head_rows, 0);
  for (int32_t begin = 0; begin < step.free_rows.bound; begin += logit_group_) {
    if (!one_head) push_head(ops, step, step.free_rows, begin);
    push_sampler(ops, step, step.free_rows, begin, 0);
  }
  if (step.masked_rows.bound == 0) return push_results(ops, step, take);
  if (!one_head) push_head(ops, step, step.masked_rows, 0);
  push_computed(ops, take);
}

void ModelRunner::push_second_step(OpList& ops, Step& step, LaunchState& launch) {
  const TakeParams take = take_params(launch);
  push_masks(ops, take, model_.config().vocab_size);
  for (int32_t begin = 0; begin < step.masked_rows.bound; begin += logit_group_) {
    if (begin > 0) push_head(ops, step, step.masked_rows, begin);
    push_sampler(ops, step, step.masked_rows, begin, has_one_head(step) ? step.masked_rows.first : 0);
  }
  push_results(ops, step, take);
}

bool ModelRunner::has_one_head(const Step& step) const {
  return step.head_rows.bound <= logit_group_;
}

// The logits of one group of rows.
void ModelRunner::push_head(OpList& ops, const Step& step, const LogitRange& range, int32_t begin) {
  model_.logits(ops, table_, step.inputs(range), begin, std::min(logit_group_, range.bound - begin),
                logits_.as<float>(), ld_logits_);
}

// logits_row: where the logits of row `begin` are.
void ModelRunner::push_sampler(OpList& ops, const Step& step, const LogitRange& range, int32_t begin,
                               int32_t logits_row) {
  sampler_->push(ops, {.rows = {range.count, begin, std::min(logit_group_, range.bound - begin)},
                       .logit_rows = step.logit_info + range.first,
                       .logits = logits_.as<float>() + logits_row * ld_logits_,
                       .ld = ld_logits_,
                       .slots = slots_.states,
                       .future_map = slots_.future_map,
                       .results = step.results + range.first});
}

void ModelRunner::push_results(OpList& ops, const Step& step, const TakeParams& take) {
  push_commit(ops, take);
  const size_t rows = (*step.batch)->rows.size();
  const size_t logit_rows = size_t(step.free_rows.bound + step.masked_rows.bound);
  device_.push_copy(ops, step.host_places, step.places, rows * sizeof(Step::RowPlace));
  if (logit_rows > 0)
    device_.push_copy(ops, step.host_results, step.results, logit_rows * sizeof(SampleResult));
  push_embedding_copies(device_, ops, step, slots_);
}

PendingForward ModelWorker::forward_batch_generation(Frozen<ModelWorkerBatch> batch) {
  std::shared_ptr<LaunchState> launch = ModelRunner::new_launch(*batch);
  SamplingInfoDone sampling_info_done;
  if (has_masked_rows(*batch)) {
    sampling_info_done = [this, launch](std::optional<SamplingInfo> info) {
      runner_.sample_masked_rows(launch, std::move(info));
    };
  }
  runner_.launch(launch, std::move(batch));
  return PendingForward(std::move(launch), std::move(sampling_info_done));
}

}  // namespace gapless
