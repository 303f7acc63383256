#include "worker/pooling.h"

#include <algorithm>

namespace gapless {
namespace {

struct PoolParams {
  const Step* step;
  DeviceSlots slots;
  HiddenStates hidden;
};

// Of one batch row; its hidden states begin at `from`.
void pool_row(const BatchRow& row, const PoolParams& p, const float* from) {
  const int32_t dim = p.slots.ld_pooled, end = row.start_pos + row.n_tokens;
  float* const sum = p.slots.pooled + int64_t(row.slot) * dim;
  for (int32_t position = end - row.n_pooled; position < end; position++, from += p.hidden.ld) {
    if (position == row.pool_begin) std::fill_n(sum, dim, 0.0f);
    for (int32_t d = 0; d < dim; d++) sum[d] += from[d];
  }
  if (!row.embeds) return;
  const auto n = float(end - row.pool_begin);
  for (int32_t d = 0; d < dim; d++) sum[d] /= n;
}

int32_t one_chunk(const PoolParams&) {
  return 1;
}
void run_pool(const PoolParams& p, int32_t, OpContext&) {
  const std::vector<BatchRow>& rows = (*p.step->batch)->rows;
  const float* from = p.hidden.rows;
  for (size_t i = 0; i < rows.size(); i++) {
    if (rows[i].n_pooled == 0 || p.step->places[i].status != RowStatus::kOk) continue;
    pool_row(rows[i], p, from);
    from += rows[i].n_pooled * p.hidden.ld;
  }
}

}  // namespace

void push_pool(OpList& ops, const Step& step, const DeviceSlots& slots, const HiddenStates& hidden) {
  ops.push<one_chunk, run_pool>("pool", PoolParams{&step, slots, hidden});
}

void push_embedding_copies(Device& device, OpList& ops, const Step& step, const DeviceSlots& slots) {
  float* to = step.host_embeddings;
  for (const BatchRow& row : (*step.batch)->rows) {
    if (!row.embeds) continue;
    device.push_copy(ops, to, slots.pooled + int64_t(row.slot) * slots.ld_pooled,
                     size_t(slots.ld_pooled) * sizeof(float));
    to += slots.ld_pooled;
  }
}

}  // namespace gapless
