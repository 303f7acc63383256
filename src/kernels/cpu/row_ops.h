// Ops that work row by row, on the bodies of an instruction set. `Set` names its tables: Set::kRows,
// Set::kMatmul, Set::kAttention.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cpu/bodies.h"
#include "kernels/ops.h"

namespace gapless::cpu {

inline float* scratch_floats(OpContext& context, int64_t n) {
  CHECK_LE(size_t(n) * sizeof(float), context.scratch.size());
  return reinterpret_cast<float*>(context.scratch.data());
}

// Rows in chunks of about `elements` activations: enough work (half a microsecond) to pay for handing a chunk
// out.
struct RowChunks {
  int32_t rows, per_chunk;
  RowChunks(int32_t rows, int32_t dim, int32_t elements)
      : rows(rows), per_chunk(std::max(1, elements / std::max(1, dim))) {}
  int32_t count() const { return (rows + per_chunk - 1) / per_chunk; }
  int32_t begin(int32_t chunk) const { return chunk * per_chunk; }
  int32_t end(int32_t chunk) const { return std::min(rows, (chunk + 1) * per_chunk); }
};

// Elements first .. first + n - 1 of an output row; y may already be where they belong. first and n are
// multiples of 32 with q8.
inline void emit(const RowBodies& bodies, const ActOut& out, const ActivationTiles& tiles, int32_t row,
                 int32_t first, int32_t n, const float* y) {
  if (out.f32 && y != out.f32 + row * out.ld + first) std::copy(y, y + n, out.f32 + row * out.ld + first);
  if (!out.q8) return;
  const auto place = tiles.place(row, out.dim / 32);
  const size_t at = place.first + size_t(first / 32) * place.stride;
  bodies.quantise(y, n / 32, out.q8 + at, int64_t(place.stride));
  if (!out.q8_low) return;
  for (int32_t b = 0; b < n / 32; b++) {
    const Q8Block& high = out.q8[at + size_t(b) * place.stride];
    float rest[32];
    for (int32_t i = 0; i < 32; i++) rest[i] = y[32 * b + i] - high.s * float(high.q[i]);
    bodies.quantise(rest, 1, out.q8_low + at + size_t(b) * place.stride, 1);
  }
}

// ---------------------------------------------------------------- embed, rope_table: nothing to gain from
// wide vectors

inline RowChunks embed_rows(const EmbedParams& p) {
  return {p.rows.size(), p.table.k, 1024};
}
inline int32_t embed_chunks(const EmbedParams& p) {
  return embed_rows(p).count();
}
inline void embed_run(const EmbedParams& p, int32_t chunk, OpContext&) {
  const RowChunks chunks = embed_rows(p);
  for (int32_t i = chunks.begin(chunk); i < chunks.end(chunk); i++) {
    float* y = p.out + i * p.ld_out;
    dequantise_packed_row(p.table, p.ids[p.rows.begin + i], y);
    for (int32_t d = 0; d < p.table.k; d++) y[d] *= p.scale;
  }
}

inline RowChunks rope_table_rows(const RopeTableParams& p) {
  return {p.rows.size(), p.half, 128};
}
inline int32_t rope_table_chunks(const RopeTableParams& p) {
  return rope_table_rows(p).count();
}
inline void rope_table_run(const RopeTableParams& p, int32_t chunk, OpContext&) {
  const RowChunks chunks = rope_table_rows(p);
  for (int32_t i = chunks.begin(chunk); i < chunks.end(chunk); i++) {
    float* out = p.out + int64_t(i) * 2 * p.half;
    for (int32_t j = 0; j < p.half; j++) {
      const double angle = double(p.positions[p.rows.begin + i]) * p.inv_freq[j];
      out[2 * j] = float(std::cos(angle));
      out[2 * j + 1] = float(std::sin(angle));
    }
  }
}

// ---------------------------------------------------------------- rms_norm

inline float norm_factor(const RowBodies& bodies, const float* x, int32_t dim, float eps) {
  return 1.f / std::sqrt(bodies.sum_squares(x, dim) / float(dim) + eps);
}
inline void normalise(const RowBodies& bodies, const float* x, const float* weight, int32_t dim, float eps,
                      float* y) {
  const float r = norm_factor(bodies, x, dim, eps);
  if (weight) {
    bodies.scale(x, r, weight, dim, y);
  } else {
    bodies.scale_only(x, r, dim, y);
  }
}

inline RowChunks rms_norm_rows(const RmsNormParams& p) {
  return {p.rows.size(), p.out.dim, 2048};
}
inline int32_t rms_norm_chunks(const RmsNormParams& p) {
  return rms_norm_rows(p).count();
}
template <class Set>
void rms_norm_run(const RmsNormParams& p, int32_t chunk, OpContext& context) {
  const RowChunks chunks = rms_norm_rows(p);
  const ActivationTiles tiles(chunks.rows);
  for (int32_t i = chunks.begin(chunk); i < chunks.end(chunk); i++) {
    const int32_t row = p.gather ? p.gather[p.rows.begin + i] : p.rows.begin + i;
    float* y = !p.residual && p.out.f32 ? p.out.f32 + i * p.out.ld : scratch_floats(context, p.out.dim);
    normalise(Set::kRows, p.x + row * p.ldx, p.weight, p.out.dim, p.eps, y);
    if (p.residual) {
      Set::kRows.add(y, p.out.dim, p.residual + row * p.ld_residual);
    } else {
      emit(Set::kRows, p.out, tiles, i, 0, p.out.dim, y);
    }
  }
}

// ---------------------------------------------------------------- rope_kv

inline RowChunks rope_kv_rows(const RopeKvParams& p) {
  return {p.rows.size(), (p.n_heads + 2 * p.kv.n_kv_heads) * p.kv.head_dim, 2048};
}
inline int32_t rope_kv_chunks(const RopeKvParams& p) {
  return rope_kv_rows(p).count();
}
template <class Set>
void rope_kv_row(const RopeKvParams& p, int32_t i) {
  const KvLayer& kv = p.kv;
  const int32_t position = p.positions[p.rows.begin + i], dim = kv.head_dim;
  const int64_t page = kv.page_table[p.slots[p.rows.begin + i] * kv.ld_page_table + position / kv.page_size];
  const float* cos_sin = p.cos_sin + int64_t(i) * 2 * p.rope_half;
  const auto rope = Set::kRows.rope[int(p.style)];
  const auto to_kv = Set::kRows.to_kv[int(kv.dtype)];
  float* head = p.qkv + i * p.ld;
  for (int32_t h = 0; h < p.n_heads; h++, head += dim) {
    if (p.q_norm) normalise(Set::kRows, head, p.q_norm, dim, p.eps, head);
    rope(head, cos_sin, p.rope_half);
  }
  const int32_t offset = position % kv.page_size, lanes = k_lanes(kv.page_size);
  int64_t at = page * kv.n_kv_heads * kv.page_size * dim;
  for (int32_t h = 0; h < kv.n_kv_heads; h++, head += dim, at += int64_t(kv.page_size) * dim) {
    if (p.k_norm) normalise(Set::kRows, head, p.k_norm, dim, p.eps, head);
    rope(head, cos_sin, p.rope_half);
    uint16_t k[kMaxHeadDim];
    to_kv(head, dim, k);
    uint16_t* to = kv.k + at + k_element(kv.page_size, dim, offset, 0);
    for (int32_t d = 0; d < dim; d++) to[int64_t(d) * lanes] = k[d];
    to_kv(head + int64_t(kv.n_kv_heads) * dim, dim, kv.v + at + int64_t(offset) * dim);
  }
}
template <class Set>
void rope_kv_run(const RopeKvParams& p, int32_t chunk, OpContext&) {
  const RowChunks chunks = rope_kv_rows(p);
  for (int32_t i = chunks.begin(chunk); i < chunks.end(chunk); i++) rope_kv_row<Set>(p, i);
}

// ---------------------------------------------------------------- gated_activation: a row is cut into
// pieces, so that one row keeps several workers busy

inline constexpr int32_t kGatedPiece = 768;  // a multiple of 32; about half a microsecond

inline int32_t gated_pieces(const GatedActivationParams& p) {
  return (p.out.dim + kGatedPiece - 1) / kGatedPiece;
}
inline int32_t gated_chunks(const GatedActivationParams& p) {
  return p.rows.size() * gated_pieces(p);
}
template <class Set>
void gated_run(const GatedActivationParams& p, int32_t chunk, OpContext& context) {
  const int32_t row = chunk / gated_pieces(p), first = chunk % gated_pieces(p) * kGatedPiece;
  const int32_t n = std::min(kGatedPiece, p.out.dim - first);
  const float* gate = p.gate_up + row * p.ld + first;
  float* y = p.out.f32 ? p.out.f32 + row * p.out.ld + first : scratch_floats(context, n);
  Set::kRows.gated[int(p.activation)](gate, gate + p.up_offset, n, y);
  emit(Set::kRows, p.out, ActivationTiles(p.rows.size()), row, first, n, y);
}

}  // namespace gapless::cpu
