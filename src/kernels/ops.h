// The operations a model is made of: a parameter struct per op, and a table of functions that append the op
// to a step. Each op has a reference loop (kernels/reference/), which is its contract, and fast bodies per
// instruction set (kernels/cpu/) that give the same bits.
//
// The contract that makes an answer the same alone and in a crowd: a row's arithmetic never depends on how
// many rows share the call, on how the sequence was cut into chunks, on the page size, or on which thread
// took which piece. Every op below states its order of floating-point operations; `fma` means one rounding.
//
// Shapes: activations are row-major float32, one row per token of the step ("rows"). `ld*` is the distance
// between rows in elements.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/quant.h"

namespace gapless {

// What a row index means: arrays of the step (ids, positions, slots, gather, rms_norm's x and residual) are
// read at begin + i; activations (matmul's x and y, qkv, gate_up, cos_sin, embed's out, every ActOut) at i,
// for i = 0 .. rows.size() - 1.
//
// Which rows an op works on. The number of rows of a step is only known on the device (the step's first op,
// `take`, drops rows that ended), so it is read through a pointer when the op runs: rows begin .. begin +
// size() - 1, at most `cap` of them.
struct Rows {
  const int32_t* count = nullptr;
  int32_t begin = 0;
  int32_t cap = 0;
  int32_t size() const {
    const int32_t n = *count - begin;
    return n < 0 ? 0 : n < cap ? n : cap;
  }
};

// Where an op puts activations that a matmul reads next: float32 rows, int8 blocks (kernels/quant.h), or
// both; null = not wanted. q8_low holds what q8 rounds away, as int8 blocks again: x - s * q per element (two
// roundings), through quantise_block. Together they are worth about 15 bits.
struct ActOut {
  float* f32 = nullptr;
  int64_t ld = 0;
  Q8Block* q8 = nullptr;      // tile order of ActivationTiles(rows.size())
  int32_t dim = 0;            // elements per row, at most kMaxActDim; a multiple of 32 when q8 is set
  Q8Block* q8_low = nullptr;  // like q8, which must be set too
};
inline constexpr int32_t kMaxActDim = 65536;

// y[i] = scale * dequantised row ids[begin + i] of `table`. (one multiply after dequantising)
struct EmbedParams {
  Rows rows;
  const int32_t* ids;
  PackedMatrix table;
  float scale;
  float* out;
  int64_t ld_out;
};

// RMS norm of row (gather ? gather[begin + i] : begin + i) of x. Sum of squares: 16 lanes, lane l takes
// elements l, l+16, ... with fma, then the fixed tree of kernels/numeric.h; r = 1 / sqrt(sum / dim + eps); y
// = (x * r) * weight. dim is out.dim. With residual set (Gemma's post norms): y is added to the residual rows
// instead, residual[row] += y, and `out` is not written.
struct RmsNormParams {
  Rows rows;
  const int32_t* gather;  // null: identity
  const float* x;
  int64_t ldx;
  const float* weight;  // null: all ones
  float eps;
  ActOut out;
  float* residual;
  int64_t ld_residual;
};

// Y[rows, N] = X[rows, K] * W[N, K]^T. Quantised weights read x.q8 and follow the block contract of
// kernels/quant.h; float weights read x.f32: acc = fma(w[k], x[k], acc), k ascending. With `add`: y = y + acc
// (one addition), else y = acc. Quantised weights with x_q8_low: outputs from low_begin on then get the same
// sum over x_q8_low added, y = y + acc_low (one addition); their weights are read from memory once.
// Keep ldx and ldy off multiples of 4 KB: rows would share cache sets (256 rows, K 2048, BF16: 89 instead of
// 200 GFLOP/s a core).
struct MatmulParams {
  Rows rows;
  const float* x_f32;
  int64_t ldx;
  const Q8Block* x_q8;  // tile order of ActivationTiles(rows.size())
  PackedMatrix w;
  float* y;
  int64_t ldy;  // >= padded N
  bool add;
  const Q8Block* x_q8_low = nullptr;  // ActOut::q8_low
  int32_t low_begin = 0;              // a multiple of 16
  const char* label = nullptr;        // of the op (device/device.h)
};

// cos and sin for each row's position, pos = positions[begin + i]: out[i][2 * j] = cos(pos * inv_freq[j]),
// out[row][2 * j + 1] = sin(...), j < half. The angle is computed in double, so a position's values never
// depend on the batch.
struct RopeTableParams {
  Rows rows;
  const int32_t* positions;
  const double* inv_freq;
  int32_t half;
  float* out;  // [rows][2 * half]
};

enum class RopeStyle {
  kInterleaved,
  kHalves
};  // pairs (2j, 2j+1) as in Llama GGUF files; (j, j + half) as in GPT-NeoX and Gemma

enum class KvDtype { kF16, kBF16, kI8 };
inline constexpr KvDtype kKvDtypes[] = {KvDtype::kF16, KvDtype::kBF16, KvDtype::kI8};
inline constexpr const char* kv_dtype_name(KvDtype dtype) {
  return dtype == KvDtype::kF16 ? "f16" : dtype == KvDtype::kBF16 ? "bf16" : "int8";
}

// kI8: a row, which is the K or the V of one position and head, has a scale of its own; element d is worth
// scale * q[d] (quantise_row of kernels/quant.h).
inline constexpr int32_t kv_element_bytes(KvDtype dtype) {
  return dtype == KvDtype::kI8 ? 1 : 2;
}
inline constexpr int32_t kv_row_bytes(KvDtype dtype, int32_t head_dim) {
  return head_dim * kv_element_bytes(dtype) + (dtype == KvDtype::kI8 ? int32_t(sizeof(float)) : 0);
}

// Positions whose K elements lie side by side: with pages of 16, 32, ... 16 positions are the lanes of a
// vector, so that scores need no shuffles; with other page sizes K is a row per position, and attention has
// to transpose it (about three times the time).
inline constexpr int32_t k_lanes(int32_t page_size) {
  return page_size % 16 == 0 ? 16 : 1;
}
// Element (offset in page, d) of the K of one page and head.
inline constexpr int64_t k_element(int32_t page_size, int32_t head_dim, int32_t offset, int32_t d) {
  const int32_t lanes = k_lanes(page_size);
  return (int64_t(offset / lanes) * head_dim + d) * lanes + offset % lanes;
}

// One layer's part of the paged KV cache. The rows of a page and head lie together, at page_begin(): their
// elements, K in the order of k_element, V as [offset in page][head_dim]; behind them, for kI8, their scales,
// [offset in page].
struct KvLayer {
  std::byte* k;
  std::byte* v;
  KvDtype dtype;
  int32_t n_kv_heads, head_dim, page_size;
  const int32_t* page_table;  // [slots][ld_page_table]: page of position p of slot s is page_table[s * ld + p
                              // / page_size]
  int64_t ld_page_table;

  int64_t page_bytes() const { return int64_t(page_size) * kv_row_bytes(dtype, head_dim); }  // of one head
  // Bytes from k, and from v.
  int64_t page_begin(int32_t slot, int32_t kv_head, int32_t position) const {
    const int64_t page = page_table[slot * ld_page_table + position / page_size];
    return (page * n_kv_heads + kv_head) * page_bytes();
  }
  // Bytes from page_begin to the scale of a row.
  int64_t scale_at(int32_t offset) const {
    return int64_t(page_size) * head_dim + offset * int32_t(sizeof(float));
  }
};

// Per row of qkv = [q heads | k heads | v heads]: optional RMS norm of each q and k head (weights of
// head_dim, as rms_norm), rope on q and k, q stays in qkv, k and v are rounded to the KV type (nearest even;
// kI8: quantise_row) and stored at (slot, position). The k part of qkv is undefined afterwards. A pair (a, b)
// becomes (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)).
struct RopeKvParams {
  Rows rows;
  float* qkv;
  int64_t ld;
  int32_t n_heads;
  const int32_t* positions;
  const int32_t* slots;
  const float* q_norm;  // null: none
  const float* k_norm;
  float eps;
  RopeStyle style;
  int32_t rope_half;     // pairs that are rotated; 2 * rope_half <= head_dim
  const float* cos_sin;  // of RopeTableParams
  KvLayer kv;
};

// A run of consecutive rows of one sequence: `rows` rows from row_begin on, at positions pos_begin, pos_begin
// + 1, ...
struct AttentionTile {
  int32_t slot, row_begin, rows, pos_begin;
};
inline constexpr int32_t kAttentionTileRows = 8;  // tiles never hold more rows
inline constexpr int32_t kKvBlock =
    64;  // KV positions per partial, at absolute multiples; the order of the combine is by block

// Causal attention of each row over positions max(0, pos - window + 1) .. pos of its sequence (window 0:
// all), grouped heads. Per row, head and KV block b (positions 64 b .. 64 b + 63, masked ones left out, never
// read): s_j = scale * dot(q, k_j) (fma over d, ascending, from 0); m_b = max s_j; p_j = exp(s_j -
// m_b); l_b = sum p_j (lane j % 16 in order of j, fixed tree: a serial sum would wait 64 additions); o_b[d] =
// fma(p_j, v_j[d], o_b[d]) in order of j from 0. The first block that has a position is the state (m, l, o);
// later ones are combined in ascending order: m' = max(m, m_b), c = exp(m - m'), c_b = exp(m_b - m'), l =
// fma(l, c, l_b * c_b), o = fma(o, c, o_b * c_b) per element; at the end o / l. exp is kernels/numeric.h's.
// kI8: k_j and v_j are the integers, with s_j = (scale * k_scale_j) * dot, and p_j * v_scale_j in place of
// p_j in o_b (not in l_b). head_dim is a multiple of 16, at most kMaxHeadDim; with out.q8, n_heads /
// n_kv_heads * head_dim is a multiple of 32.
inline constexpr int32_t kMaxHeadDim = 512;

// With few tiles and KV heads, as when one long answer runs, an op may cut them further, into ranges of KV
// blocks: their partials go through memory, and the last range of a tile and head to be done combines them
// in the same order. No bit depends on it.
struct AttentionSplit {
  int32_t chunks = 0;          // not cut into more than these; 0: never cut
  float* partials = nullptr;   // 64-byte aligned
  int64_t capacity = 0;        // floats; a tile and head whose share is too small for it is not cut
  int32_t* arrived = nullptr;  // [chunks], zero before and after the op
};
// AttentionSplit::chunks of models: some for each worker of a usual machine.
inline constexpr int32_t kAttentionChunks = 16;
// Room for the partials of `rows` rows with so many positions.
inline constexpr int64_t attention_split_floats(int32_t rows, int32_t positions, int32_t n_heads,
                                                int32_t head_dim) {
  return int64_t(rows) * (positions / kKvBlock + 1) * n_heads * (head_dim + 16);
}

struct AttentionParams {
  Rows rows;  // all rows of the step (begin 0); every one of them is in exactly one tile
  const AttentionTile* tiles;
  const int32_t* n_tiles;
  int32_t max_tiles;
  const float* q;  // [rows][ldq], heads first
  int64_t ldq;
  int32_t n_heads;
  float scale;
  int32_t window;
  KvLayer kv;
  ActOut out;  // [rows][n_heads * head_dim]
  AttentionSplit split = {};
};

enum class Activation { kSilu, kGeluTanh };

// out[i] = act(gate[i]) * up[i] for each row of gate_up = [gate | up], each `dim` wide (out.dim). silu and
// gelu_tanh are kernels/numeric.h's.
struct GatedActivationParams {
  Rows rows;
  const float* gate_up;
  int64_t ld;
  int64_t up_offset;  // elements from the start of a row to `up`
  Activation activation;
  ActOut out;
};

// The table a model calls. Each function appends one op (or a few) to the step and returns at once.
struct OpTable {
  const char* name;  // "reference", "avx2", "avx512", "neon"
  void (*embed)(OpList&, const EmbedParams&);
  void (*rms_norm)(OpList&, const RmsNormParams&);
  void (*matmul)(OpList&, const MatmulParams&);
  void (*rope_table)(OpList&, const RopeTableParams&);
  void (*rope_kv)(OpList&, const RopeKvParams&);
  void (*attention)(OpList&, const AttentionParams&);
  void (*gated_activation)(OpList&, const GatedActivationParams&);
};

}  // namespace gapless
