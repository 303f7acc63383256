#include "worker/step.h"

#include <algorithm>

#include "sampling/token_mask.h"

namespace gapless {
namespace {

// Hands out 64-byte aligned pieces of one allocation. With a null base it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(size_t n) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (n * sizeof(T) + 63) / 64 * 64;
    return p;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

size_t carve_device(Step& s, std::byte* base) {
  Carver c(base);
  s.ids = c.take<int32_t>(s.limits.max_rows);
  s.positions = c.take<int32_t>(s.limits.max_rows);
  s.slots = c.take<int32_t>(s.limits.max_rows);
  s.tiles = c.take<AttentionTile>(max_tiles(s.limits));
  s.logit_rows = c.take<int32_t>(s.limits.max_rows);
  s.logit_info = c.take<LogitRow>(s.limits.max_rows);
  s.counts = c.take<Step::Counts>(1);
  s.results = c.take<SampleResult>(s.limits.max_rows);
  s.places = c.take<Step::RowPlace>(s.limits.max_seqs);
  return c.used();
}

size_t carve_host(Step& s, std::byte* base) {
  Carver c(base);
  s.host_results = c.take<SampleResult>(s.limits.max_rows);
  s.host_places = c.take<Step::RowPlace>(s.limits.max_seqs);
  s.host_embeddings = c.take<float>(size_t(s.limits.max_seqs) * s.limits.embedding_dim);
  return c.used();
}

// The body of `take`, one batch row at a time.
class Taker {
 public:
  explicit Taker(const TakeParams& p) : p_(p), s_(*p.step), batch_(**p.step->batch) {}

  void run() {
    for (const PageWrite& w : batch_.page_writes)
      p_.slots.page_table[w.slot * p_.slots.ld_page_table + w.index] = w.page;
    for (size_t i = 0; i < s_.inits.size(); i++) admit(batch_.slot_inits[i], s_.inits[i]);
    for (size_t i = 0; i < batch_.rows.size(); i++) {
      s_.places[i] = {RowStatus::kOk, n_free_, -1};
      take_row(batch_.rows[i], s_.places[i]);
    }
    fill_head_rows();
    *s_.counts = {.rows = n_rows_,
                  .tiles = n_tiles_,
                  .free_rows = n_free_,
                  .masked_rows = n_masked_,
                  .head_rows = n_rows_ > 0 ? s_.head_rows.bound : 0,
                  .pooled_rows = n_pooled_,
                  .computed = 0};
  }

 private:
  // So that one pass over the head's weights serves free and masked rows, whichever of them live.
  void fill_head_rows() {
    std::fill(s_.logit_rows + n_free_, s_.logit_rows + s_.free_rows.bound, 0);
    std::fill(s_.logit_rows + s_.masked_rows.first + n_masked_, s_.logit_rows + s_.head_rows.bound, 0);
  }

  void admit(const SlotInit& init, SlotStatePtr& state) {
    SlotState* former = p_.slots.states[init.slot];
    p_.slots.states[init.slot] = state.release();
    state.reset(former);
    p_.slots.future_map[init.slot] = {.epoch = init.epoch,
                                      .kv_end = init.cached_tokens,
                                      .token = init.output_ids.empty() ? -1 : init.output_ids.back(),
                                      .output_index = int32_t(init.output_ids.size()) - 1};
  }

  // kFailed: a step failed that should have admitted the request, written the KV before this row or emitted
  // the token behind its placeholder. kDropped: that token ended the request.
  RowStatus resolve(const BatchRow& row, int32_t& id) const {
    const FutureEntry entry = p_.slots.future_map[row.slot];
    if (entry.epoch != row.epoch || entry.kv_end != row.start_pos) return RowStatus::kFailed;
    if (!is_placeholder(id)) return RowStatus::kOk;
    if (entry.output_index != row.output_index - 1 || entry.token < 0) return RowStatus::kFailed;
    const SamplingParams& params = Sampler::params_of(*p_.slots.states[row.slot]);
    const TokenEnd end = ends_by_token(params, p_.sampler->eos_ids(), entry.output_index, entry.token);
    id = entry.token;
    return end == TokenEnd::kNo ? RowStatus::kOk : RowStatus::kDropped;
  }

  void take_row(const BatchRow& row, Step::RowPlace& place) {
    int32_t first_id = batch_.input_ids[row.input_begin];
    place.status = resolve(row, first_id);
    if (place.status != RowStatus::kOk) return;
    const int32_t row_begin = n_rows_;
    for (int32_t t = 0; t < row.n_tokens; t++, n_rows_++) {
      s_.ids[n_rows_] = t == 0 ? first_id : batch_.input_ids[row.input_begin + t];
      s_.positions[n_rows_] = row.start_pos + t;
      s_.slots[n_rows_] = row.slot;
    }
    for (int32_t t = 0; t < row.n_tokens; t += kAttentionTileRows) {
      const int32_t rows = std::min(kAttentionTileRows, row.n_tokens - t);
      s_.tiles[n_tiles_++] = {row.slot, row_begin + t, rows, row.start_pos + t};
    }
    for (int32_t t = 0; t < row.n_targets; t++) {
      const int32_t at = row_begin + row.prompt_logprob_begin - row.start_pos + t;
      add_logit_row(s_.free_rows, n_free_, at, {row.slot, batch_.prompt_targets[row.targets_begin + t]});
    }
    for (int32_t at = n_rows_ - row.n_pooled; at < n_rows_; at++)
      s_.logit_rows[s_.pooled_rows.first + n_pooled_++] = at;
    if (!row.emits) return;
    place.sampled = row.masked ? add_logit_row(s_.masked_rows, n_masked_, n_rows_ - 1, {row.slot, kSampleRow})
                               : add_logit_row(s_.free_rows, n_free_, n_rows_ - 1, {row.slot, kSampleRow});
  }

  int32_t add_logit_row(const LogitRange& range, int32_t& count, int32_t row, LogitRow info) {
    const int32_t at = range.first + count++;
    s_.logit_rows[at] = row;
    s_.logit_info[at] = info;
    return at;
  }

  const TakeParams& p_;
  Step& s_;
  const ModelWorkerBatch& batch_;
  int32_t n_rows_ = 0, n_tiles_ = 0, n_free_ = 0, n_masked_ = 0, n_pooled_ = 0;
};

struct MaskParams {
  TakeParams take;
  int32_t vocab;
};

template <class P>
int32_t one_chunk(const P&) {
  return 1;
}
void run_take(const TakeParams& p, int32_t, OpContext& context) {
  if (!p.launch->try_take()) return context.end_step();
  Taker(p).run();
}
void run_computed(const TakeParams& p, int32_t, OpContext&) {
  p.step->counts->computed = p.launch->batch_id;
}
void run_masks(const MaskParams& p, int32_t, OpContext& context) {
  if (p.take.launch->recalled()) return context.end_step();
  Step& s = *p.take.step;
  if (s.counts->computed != p.take.launch->batch_id)
    return context.fail(Status::internal("the first part of the step failed"));
  const std::vector<BatchRow>& rows = (*s.batch)->rows;
  const uint32_t* allowed = s.info.allowed.data();
  const RowMask* mask = s.info.rows.data();
  for (size_t i = 0; i < rows.size(); i++) {
    if (!rows[i].masked) continue;
    if (s.places[i].status == RowStatus::kOk) {
      LogitRow& row = s.logit_info[s.places[i].sampled];
      const int32_t first = *mask == RowMask::kAllowed ? first_allowed(allowed, p.vocab) : -1;
      if (first >= 0) {
        row.allowed = allowed;
        if (next_allowed(allowed, first + 1, p.vocab) < 0) row.forced = first;
      } else {
        row.target = kSkipRow;
        s.places[i].status = *mask == RowMask::kEnded ? RowStatus::kDropped : RowStatus::kFailed;
      }
    }
    mask++;
    allowed += mask_words(p.vocab);
  }
}
void run_commit(const TakeParams& p, int32_t, OpContext&) {
  const ModelWorkerBatch& batch = **p.step->batch;
  for (size_t i = 0; i < batch.rows.size(); i++) {
    const BatchRow& row = batch.rows[i];
    if (p.step->places[i].status == RowStatus::kOk)
      p.slots.future_map[row.slot].kv_end = row.start_pos + row.n_tokens;
  }
}

}  // namespace

Result<std::unique_ptr<Step>> Step::create(Device& device, StepLimits limits) {
  auto step = std::make_unique<Step>();
  step->limits = limits;
  ASSIGN_OR_RETURN(step->device_memory_, device.allocate(carve_device(*step, nullptr), MemoryKind::kDevice));
  ASSIGN_OR_RETURN(step->host_memory_, device.allocate(carve_host(*step, nullptr), MemoryKind::kHostResult));
  carve_device(*step, step->device_memory_.as<std::byte>());
  carve_host(*step, step->host_memory_.as<std::byte>());
  return step;
}

void Step::reset(Frozen<ModelWorkerBatch> next, const Sampler& sampler) {
  inits.clear();
  for (const SlotInit& init : next->slot_inits) inits.push_back(sampler.prepare(init));
  free_rows = {0, 0, &counts->free_rows};
  masked_rows = {0, 0, &counts->masked_rows};
  pooled_rows = {0, 0, &counts->pooled_rows};
  for (const BatchRow& r : next->rows) {
    free_rows.bound += r.n_targets + (r.emits && !r.masked);
    masked_rows.bound += r.masked;
    pooled_rows.bound += r.n_pooled;
  }
  masked_rows.first = free_rows.bound;
  head_rows = {0, masked_rows.first + masked_rows.bound, &counts->head_rows};
  pooled_rows.first = head_rows.bound;
  batch.emplace(std::move(next));
}

ForwardInputs Step::inputs(const LogitRange& logits) const {
  return {.n_rows = &counts->rows,
          .max_rows = int32_t((*batch)->input_ids.size()),
          .ids = ids,
          .positions = positions,
          .slots = slots,
          .tiles = tiles,
          .n_tiles = &counts->tiles,
          .max_tiles = max_tiles(limits),
          .logit_rows = logit_rows + logits.first,
          .n_logit_rows = logits.count};
}

void push_commit(OpList& ops, const TakeParams& params) {
  ops.push<one_chunk<TakeParams>, run_commit>("commit", params);
}

void push_computed(OpList& ops, const TakeParams& params) {
  ops.push<one_chunk<TakeParams>, run_computed>("computed", params);
}

void push_masks(OpList& ops, const TakeParams& params, int32_t vocab_size) {
  ops.push<one_chunk<MaskParams>, run_masks>("masks", MaskParams{params, vocab_size});
}

void push_take(OpList& ops, const TakeParams& params) {
  ops.push<one_chunk<TakeParams>, run_take>("take", params);
}

}  // namespace gapless
