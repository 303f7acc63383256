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

// Rows in equal chunks of about `elements` activations: enough work to pay for handing a chunk out. Equal,
// because with few rows the longest chunk is what the others wait for; and not many more chunks than any
// machine has workers.
struct RowChunks {
  static constexpr int32_t kMost = 64;
  int32_t rows, n;
  RowChunks(int32_t rows, int32_t dim, int32_t elements)
      : rows(rows),
        n(int32_t(std::min<int64_t>({rows, kMost, (int64_t(rows) * dim + elements - 1) / elements}))) {}
  int32_t count() const { return n; }
  int32_t begin(int32_t chunk) const { return int32_t(int64_t(rows) * chunk / n); }
  int32_t end(int32_t chunk) const { return begin(chunk + 1); }
};

// From this many tiles on, a chunk is a tile of the int8 output: blocks are 48 bytes, so rows of one tile
// share cache lines, which two workers would take from each other.
inline constexpr int32_t kWholeTiles = 4;

// Elements first .. first + n - 1 of an output row; y may already be where they belong. first and n are
// multiples of 32 with q8.
inline void emit(const RowBodies& bodies, const ActOut& out, const ActivationTiles& tiles, int32_t row,
                 int32_t first, int32_t n, const float* y) {
  if (out.f32 && y != out.f32 + row * out.ld + first) std::copy(y, y + n, out.f32 + row * out.ld + first);
  if (!out.q8) return;
  const auto place = tiles.place(row, out.dim / 32);
  const size_t at = place.first + size_t(first / 32) * place.stride;
  bodies.quantise(y, n / 32, out.q8 + at, out.q8_low ? out.q8_low + at : nullptr, int64_t(place.stride));
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
  RowChunks chunks(p.rows.size(), p.out.dim, 1280);
  const ActivationTiles tiles(chunks.rows);
  if (p.out.q8 && tiles.n >= kWholeTiles) chunks.n = tiles.n;
  return chunks;
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
// Element d of a row goes to to[d * stride].
template <class T>
void spread(const std::byte* from, int32_t n, int32_t stride, std::byte* to) {
  for (int32_t d = 0; d < n; d++)
    reinterpret_cast<T*>(to)[int64_t(d) * stride] = reinterpret_cast<const T*>(from)[d];
}
inline void store_scale(const KvLayer& kv, float scale, int32_t offset, std::byte* page) {
  if (kv.dtype == KvDtype::kI8) *reinterpret_cast<float*>(page + kv.scale_at(offset)) = scale;
}
template <class Set>
void rope_kv_row(const RopeKvParams& p, int32_t i) {
  const KvLayer& kv = p.kv;
  const int32_t position = p.positions[p.rows.begin + i], dim = kv.head_dim;
  const float* cos_sin = p.cos_sin + int64_t(i) * 2 * p.rope_half;
  const auto rope = Set::kRows.rope[int(p.style)];
  const auto to_kv = Set::kRows.to_kv[int(kv.dtype)];
  float* head = p.qkv + i * p.ld;
  rope(head, p.n_heads, dim, p.q_norm, p.eps, cos_sin, p.rope_half);
  head += int64_t(p.n_heads) * dim;
  rope(head, kv.n_kv_heads, dim, p.k_norm, p.eps, cos_sin, p.rope_half);
  const int32_t offset = position % kv.page_size, bytes = kv_element_bytes(kv.dtype);
  int64_t at = kv.page_begin(p.slots[p.rows.begin + i], 0, position);
  for (int32_t h = 0; h < kv.n_kv_heads; h++, head += dim, at += kv.page_bytes()) {
    std::byte k[kMaxHeadDim * sizeof(uint16_t)];
    store_scale(kv, to_kv(head, dim, k), offset, kv.k + at);
    std::byte* const to = kv.k + at + k_element(kv.page_size, dim, offset, 0) * bytes;
    (bytes == 1 ? spread<uint8_t> : spread<uint16_t>)(k, dim, k_lanes(kv.page_size), to);
    std::byte* const v = kv.v + at + int64_t(offset) * dim * bytes;
    store_scale(kv, to_kv(head + int64_t(kv.n_kv_heads) * dim, dim, v), offset, kv.v + at);
  }
}
template <class Set>
void rope_kv_run(const RopeKvParams& p, int32_t chunk, OpContext&) {
  const RowChunks chunks = rope_kv_rows(p);
  for (int32_t i = chunks.begin(chunk); i < chunks.end(chunk); i++) rope_kv_row<Set>(p, i);
}

// ---------------------------------------------------------------- gated_activation: a chunk is a tile of
// rows times a piece of their columns, so that one row keeps several workers busy

inline constexpr int32_t kGatedElements = 2560;  // per chunk

struct GatedChunks {
  ActivationTiles tiles;
  int32_t dim, piece, pieces;
  explicit GatedChunks(const GatedActivationParams& p) : tiles(p.rows.size()), dim(p.out.dim) {
    const int64_t tile = int64_t(tiles.n ? tiles.rows(tiles.n - 1) : 0) * dim;
    // An even number of pieces: two workers are the common case, and one tile their whole work.
    const int64_t want = tiles.n >= kWholeTiles ? 2 : std::max<int64_t>(2, tile / kGatedElements / 2 * 2);
    piece = int32_t((dim + want - 1) / want + 31) / 32 * 32;
    pieces = (dim + piece - 1) / piece;
  }
};
inline int32_t gated_chunks(const GatedActivationParams& p) {
  const GatedChunks chunks(p);
  return chunks.tiles.n * chunks.pieces;
}
template <class Set>
void gated_run(const GatedActivationParams& p, int32_t chunk, OpContext& context) {
  const GatedChunks chunks(p);
  const int32_t tile = chunk / chunks.pieces, first = chunk % chunks.pieces * chunks.piece;
  const int32_t n = std::min(chunks.piece, p.out.dim - first);
  for (int32_t row = chunks.tiles.first(tile); row < chunks.tiles.first(tile + 1); row++) {
    const float* gate = p.gate_up + row * p.ld + first;
    float* y = p.out.f32 ? p.out.f32 + row * p.out.ld + first : scratch_floats(context, n);
    Set::kRows.gated[int(p.activation)](gate, gate + p.up_offset, n, y);
    emit(Set::kRows, p.out, chunks.tiles, row, first, n, y);
  }
}

}  // namespace gapless::cpu
