// The attention op: a chunk is one tile of rows and one KV head.
#pragma once

#include <algorithm>

#include "kernels/cpu/row_ops.h"

namespace gapless::cpu {

static_assert(kAttentionTileRows == AttentionJob::kMaxRows && kKvBlock == 64);

inline int32_t attention_chunks(const AttentionParams& p) {
  return *p.n_tiles * p.kv.n_kv_heads;
}

// Rows first .. of a tile that fit into one job, for one KV head.
struct AttentionPart {
  AttentionTile tile;
  int32_t first, kv_head;

  // Last tiles first: in a long prompt they see the most positions, and the short ones fill the gaps at the
  // end.
  AttentionPart(const AttentionParams& p, int32_t chunk)
      : tile(p.tiles[*p.n_tiles - 1 - chunk / p.kv.n_kv_heads]), first(0), kv_head(chunk % p.kv.n_kv_heads) {}

  int32_t rows(int32_t group) const {
    return std::min({kAttentionTileRows, AttentionJob::kMaxQueries / group, tile.rows - first});
  }
};

// Without output and scratch.
inline AttentionJob attention_job(const AttentionParams& p, const AttentionPart& part) {
  const int32_t group = p.n_heads / p.kv.n_kv_heads, dim = p.kv.head_dim;
  const int64_t head_offset = int64_t(part.kv_head) * p.kv.page_size * dim;
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
          .page_stride = int64_t(p.kv.n_kv_heads) * p.kv.page_size * dim,
          .out = nullptr,
          .out_row = 0,
          .scratch = nullptr,
          .next = nullptr,
          .cold = false};
}

template <class Set>
void attention_part(const AttentionParams& p, const AttentionPart& part, AttentionJob job, float* scratch) {
  const int32_t row = part.tile.row_begin + part.first, width = job.group * job.head_dim,
                column = part.kv_head * width;
  job.out = p.out.f32 ? p.out.f32 + row * p.out.ld + column : scratch;
  job.out_row = p.out.f32 ? p.out.ld : width;
  job.scratch = scratch + int64_t(AttentionJob::kMaxQueries) * job.head_dim;
  Set::kAttention.attend[int(p.kv.dtype)](job);
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
  float* scratch =
      scratch_floats(context, AttentionJob::scratch_floats(dim) + int64_t(AttentionJob::kMaxQueries) * dim);
  const bool has_next = context.after(chunk) < attention_chunks(p);
  const AttentionJob next = attention_job(p, AttentionPart(p, has_next ? context.after(chunk) : chunk));
  for (AttentionPart part(p, chunk); part.first < part.tile.rows; part.first += part.rows(group)) {
    AttentionJob job = attention_job(p, part);
    job.cold = chunk == context.begin;
    if (has_next) job.next = &next;
    attention_part<Set>(p, part, job, scratch);
  }
}

}  // namespace gapless::cpu
