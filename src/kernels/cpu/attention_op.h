// The attention op: a chunk is one tile of rows and one KV head, or a range of their KV blocks.
#pragma once

#include <algorithm>
#include <atomic>

#include "kernels/cpu/row_ops.h"

namespace gapless::cpu {

static_assert(kAttentionTileRows == AttentionJob::kMaxRows && kKvBlock == 64);

// The fewest KV blocks that are worth a chunk of their own: with two, what comes around them is a fifth of
// the time (9 heads of 64 on 3).
inline constexpr int32_t kRangeBlocks = 4;

// A task is a tile and a KV head; each has so many chunks, of which some may have nothing to do.
inline int32_t attention_tasks(const AttentionParams& p) {
  return *p.n_tiles * p.kv.n_kv_heads;
}
inline int32_t chunks_per_task(const AttentionParams& p) {
  return std::max(1, p.split.chunks / std::max(1, attention_tasks(p)));
}
inline int32_t attention_chunks(const AttentionParams& p) {
  return attention_tasks(p) * chunks_per_task(p);
}
// Floats of AttentionSplit::partials for each task.
inline int64_t partials_per_task(const AttentionParams& p) {
  return p.split.capacity / attention_tasks(p) / 16 * 16;
}

// What a chunk does: rows first .. of a tile that fit into one job, for one KV head, and one of `ranges`
// equal ranges of their KV blocks.
struct AttentionPart {
  AttentionTile tile;
  int32_t task, kv_head, range, ranges = 1, first = 0;

  // Last tiles first: in a long prompt they see the most positions, and the short ones fill the gaps at the
  // end.
  AttentionPart(const AttentionParams& p, int32_t chunk) {
    const int32_t most = chunks_per_task(p), group = p.n_heads / p.kv.n_kv_heads;
    task = chunk / most;
    range = chunk % most;
    tile = p.tiles[*p.n_tiles - 1 - task / p.kv.n_kv_heads];
    kv_head = task % p.kv.n_kv_heads;
    if (most == 1 || rows(group) < tile.rows) return;
    const int32_t blocks = end_block(p) - begin_block(p);
    const int64_t floats = blocks * AttentionJob::partial_floats(tile.rows * group, p.kv.head_dim);
    if (floats <= partials_per_task(p)) ranges = std::clamp(blocks / kRangeBlocks, 1, most);
  }

  bool idle() const { return range >= ranges; }
  int32_t rows(int32_t group) const {
    return std::min({kAttentionTileRows, AttentionJob::kMaxQueries / group, tile.rows - first});
  }
  // Of all ranges.
  int32_t begin_block(const AttentionParams& p) const {
    return p.window > 0 ? std::max(0, tile.pos_begin + first - p.window + 1) / kKvBlock : 0;
  }
  int32_t end_block(const AttentionParams& p) const {
    const int32_t last = tile.pos_begin + first + rows(p.n_heads / p.kv.n_kv_heads) - 1;
    return last / kKvBlock + 1;
  }
};

// All KV blocks, without output and scratch.
inline AttentionJob attention_job(const AttentionParams& p, const AttentionPart& part) {
  const int32_t group = p.n_heads / p.kv.n_kv_heads, dim = p.kv.head_dim;
  const int64_t head_offset = part.kv_head * p.kv.page_bytes();
  return {.q = p.q + (part.tile.row_begin + part.first) * p.ldq + part.kv_head * group * dim,
          .q_row = p.ldq,
          .rows = part.rows(group),
          .group = group,
          .head_dim = dim,
          .pos_begin = part.tile.pos_begin + part.first,
          .window = p.window,
          .scale = p.scale,
          .k = p.kv.k + head_offset,
          .v = p.kv.v + head_offset,
          .pages = p.kv.page_table + part.tile.slot * p.kv.ld_page_table,
          .page_size = p.kv.page_size,
          .row_bytes = dim * kv_element_bytes(p.kv.dtype),
          .page_stride = p.kv.n_kv_heads * p.kv.page_bytes(),
          .begin_block = part.begin_block(p),
          .end_block = part.end_block(p),
          .partials = part.ranges > 1 ? p.split.partials + part.task * partials_per_task(p) : nullptr,
          .out = nullptr,
          .out_row = 0,
          .scratch = nullptr,
          .next = nullptr,
          .cold = false};
}

// The blocks of one range of a job.
inline AttentionJob range_of(AttentionJob job, int32_t range, int32_t ranges) {
  const int32_t begin = job.begin_block, blocks = job.end_block - begin;
  job.begin_block = begin + blocks * range / ranges;
  job.end_block = begin + blocks * (range + 1) / ranges;
  if (job.partials)
    job.partials +=
        (job.begin_block - begin) * AttentionJob::partial_floats(job.rows * job.group, job.head_dim);
  return job;
}

// Whether this was the last range of its task; the chunk that is told so sees the partials of all others.
inline bool last_to_arrive(const AttentionParams& p, const AttentionPart& part) {
  const std::atomic_ref<int32_t> arrived(p.split.arrived[part.task]);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < part.ranges) return false;
  arrived.store(0, std::memory_order_relaxed);
  return true;
}

template <class Set>
void attention_part(const AttentionParams& p, const AttentionPart& part, AttentionJob job, float* scratch) {
  const int32_t row = part.tile.row_begin + part.first, width = job.group * job.head_dim,
                column = part.kv_head * width;
  job.out = p.out.f32 ? p.out.f32 + row * p.out.ld + column : scratch;
  job.out_row = p.out.f32 ? p.out.ld : width;
  job.scratch = scratch + int64_t(AttentionJob::kMaxQueries) * job.head_dim;
  Set::kAttention.attend[int(p.kv.dtype)](range_of(job, part.range, part.ranges));
  if (part.ranges > 1) {
    if (!last_to_arrive(p, part)) return;
    Set::kAttention.combine(job);
  }
  const ActivationTiles tiles(p.rows.size());
  for (int32_t i = 0; i < job.rows; i++)
    emit(Set::kRows, p.out, tiles, row + i, column, width, job.out + i * job.out_row);
}

template <class Set>
void attention_run(const AttentionParams& p, int32_t chunk, OpContext& context) {
  const int32_t group = p.n_heads / p.kv.n_kv_heads, dim = p.kv.head_dim;
  CHECK(dim % 16 == 0 && dim <= kMaxHeadDim && group <= AttentionJob::kMaxQueries,
        "head_dim {}, {} heads per KV head", dim, group);
  CHECK(!p.out.q8 || group * dim % 32 == 0, "{} heads of {} do not fill int8 blocks", group, dim);
  AttentionPart part(p, chunk);
  if (part.idle()) return;
  float* scratch =
      scratch_floats(context, AttentionJob::scratch_floats(dim) + int64_t(AttentionJob::kMaxQueries) * dim);
  const int32_t after = context.after(chunk);
  const AttentionPart next_part(p, after < attention_chunks(p) ? after : chunk);
  const bool has_next = after < attention_chunks(p) && !next_part.idle();
  const AttentionJob next = range_of(attention_job(p, next_part), next_part.range, next_part.ranges);
  for (; part.first < part.tile.rows; part.first += part.rows(group)) {
    AttentionJob job = attention_job(p, part);
    job.cold = chunk == context.begin;
    if (has_next) job.next = &next;
    attention_part<Set>(p, part, job, scratch);
  }
}

}  // namespace gapless::cpu
