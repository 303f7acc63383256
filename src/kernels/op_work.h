// What the ops of kernels/ops.h cost, for profiles (Op::work). Bytes: weights, KV, and the activations that
// are read and written, as if none were in a cache. Row counts are those of the step, so these may only be
// called when the op could run.
#pragma once

#include <algorithm>

#include "kernels/ops.h"

namespace gapless {

inline double act_bytes(const ActOut& out) {
  return out.dim * ((out.f32 ? 4.0 : 0) + (out.q8 ? 1.5 : 0) + (out.q8_low ? 1.5 : 0));  // 48 bytes per 32
}

inline OpWork embed_work(const EmbedParams& p) {
  const double rows = p.rows.size(), k = p.table.k;
  const double table_row = double(packed_bytes(p.table.layout, 16, p.table.k)) / 16;
  return {.bytes = rows * (table_row + 4 * k), .flops = rows * k};
}

inline OpWork rms_norm_work(const RmsNormParams& p) {
  const double rows = p.rows.size(), dim = p.out.dim;
  return {.bytes = rows * (4 * dim + (p.residual ? 8 * dim : act_bytes(p.out))), .flops = rows * 4 * dim};
}

inline OpWork matmul_work(const MatmulParams& p) {
  const double m = p.rows.size(), n = p.w.n, k = p.w.k;
  if (m == 0) return {};
  const double products = m * k * (n + (p.x_q8_low ? std::max(0.0, n - p.low_begin) : 0.0));
  const double x = p.w.quantised() ? 1.5 * (p.x_q8_low ? 2 : 1) : 4;
  return {.bytes = double(packed_bytes(p.w.layout, p.w.n, p.w.k)) + m * (k * x + n * (p.add ? 8 : 4)),
          .flops = p.w.quantised() ? 0 : 2 * products,
          .int8_ops = p.w.quantised() ? 2 * products : 0};
}

inline OpWork rope_table_work(const RopeTableParams& p) {
  return {.bytes = p.rows.size() * 16.0 * p.half, .flops = p.rows.size() * 2.0 * p.half};
}

inline OpWork rope_kv_work(const RopeKvParams& p) {
  const double heads = p.n_heads + p.kv.n_kv_heads, dim = p.kv.head_dim;
  const double v = 4 * dim, stored = 2 * kv_row_bytes(p.kv.dtype, p.kv.head_dim);
  return {.bytes = p.rows.size() * (8 * heads * dim + p.kv.n_kv_heads * (v + stored)),
          .flops = p.rows.size() * 6.0 * heads * p.rope_half};
}

// The KV of a tile's positions is read once for all of its rows.
inline OpWork attention_work(const AttentionParams& p) {
  const double dim = p.kv.head_dim;
  OpWork work;
  for (int32_t t = 0; t < *p.n_tiles; t++) {
    const AttentionTile& tile = p.tiles[t];
    const auto begin = [&](int32_t position) {
      return p.window > 0 ? std::max(0, position - p.window + 1) : 0;
    };
    for (int32_t i = 0; i < tile.rows; i++) {
      const int32_t position = tile.pos_begin + i;
      work.flops += 4 * dim * p.n_heads * (position + 1 - begin(position));
    }
    work.bytes += 2.0 * kv_row_bytes(p.kv.dtype, p.kv.head_dim) * p.kv.n_kv_heads *
                  (tile.pos_begin + tile.rows - begin(tile.pos_begin));
    work.bytes += tile.rows * (4 * dim * p.n_heads + act_bytes(p.out));
  }
  return work;
}

inline OpWork gated_activation_work(const GatedActivationParams& p) {
  const double rows = p.rows.size(), dim = p.out.dim;
  return {.bytes = rows * (8 * dim + act_bytes(p.out)), .flops = rows * 16 * dim};
}

}  // namespace gapless
