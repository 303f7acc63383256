// The attention op: a chunk is one tile of rows and one KV head.
#pragma once

#include <algorithm>

#include "kernels/cpu/row_ops.h"

namespace gapless::cpu {

static_assert(kAttentionTileRows == AttentionJob::kMaxRows && kKvBlock == 64);

inline int32_t attention_chunks(const AttentionParams& p) {
  return *p.n_tiles * p.kv.n_kv_heads;
}

// rows first .. first + rows - 1 of a tile.
template <class Set>
void attention_part(const AttentionParams& p, const AttentionTile& tile, int32_t first, int32_t rows,
                    int32_t kv_head, const ActivationTiles& tiles, float* scratch) {
  const int32_t group = p.n_heads / p.kv.n_kv_heads, dim = p.kv.head_dim, width = group * dim;
  const int32_t row = tile.row_begin + first, column = kv_head * width;
  float* out = p.out.f32 ? p.out.f32 + row * p.out.ld + column : scratch;
  const int64_t out_row = p.out.f32 ? p.out.ld : width;
  const int64_t head_offset = int64_t(kv_head) * p.kv.page_size * dim;
  const AttentionJob job{.q = p.q + row * p.ldq + column,
                         .q_row = p.ldq,
                         .rows = rows,
                         .group = group,
                         .head_dim = dim,
                         .pos_begin = tile.pos_begin + first,
                         .window = p.window,
                         .scale = p.scale,
                         .k = p.kv.k + head_offset,
                         .v = p.kv.v + head_offset,
                         .pages = p.kv.page_table + tile.slot * p.kv.ld_page_table,
                         .page_size = p.kv.page_size,
                         .page_stride = int64_t(p.kv.n_kv_heads) * p.kv.page_size * dim,
                         .out = out,
                         .out_row = out_row,
                         .scratch = scratch + int64_t(AttentionJob::kMaxQueries) * dim};
  Set::kAttention.attend[int(p.kv.dtype)](job);
  for (int32_t i = 0; i < rows; i++)
    emit(Set::kRows, p.out, tiles, row + i, column, width, out + i * out_row);
}

template <class Set>
void attention_run(const AttentionParams& p, int32_t chunk, OpContext& context) {
  // Last tiles first: in a long prompt they see the most positions, and the short ones fill the gaps at the
  // end.
  const AttentionTile& tile = p.tiles[*p.n_tiles - 1 - chunk / p.kv.n_kv_heads];
  const int32_t group = p.n_heads / p.kv.n_kv_heads, dim = p.kv.head_dim;
  CHECK(dim % 16 == 0 && dim <= kMaxHeadDim && group <= AttentionJob::kMaxQueries,
        "head_dim {}, {} heads per KV head", dim, group);
  CHECK(!p.out.q8 || group * dim % 32 == 0, "{} heads of {} do not fill int8 blocks", group, dim);
  const int32_t step = std::min(kAttentionTileRows, AttentionJob::kMaxQueries / group);
  float* scratch =
      scratch_floats(context, AttentionJob::scratch_floats(dim) + int64_t(AttentionJob::kMaxQueries) * dim);
  const ActivationTiles tiles(p.rows.size());
  for (int32_t first = 0; first < tile.rows; first += step)
    attention_part<Set>(p, tile, first, std::min(step, tile.rows - first), chunk % p.kv.n_kv_heads, tiles,
                        scratch);
}

}  // namespace gapless::cpu
