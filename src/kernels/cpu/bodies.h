// What an instruction set provides: inner loops over plain memory, called through pointers by the ops of this
// folder, which are compiled once for any CPU and do the rest (rows, tiles, chunks, pages).
//
// The files that define these tables are compiled for a wider instruction set than the rest of the program.
// They must not emit a function with external linkage that others could share: no standard library,
// everything in an anonymous namespace or static.
#pragma once

#include "kernels/quant.h"

namespace gapless {

enum class KvDtype;
enum class Activation;
enum class RopeStyle;

// One tile of a quantised matmul: the first `rows` (the index of the table) rows of x's tile times one group
// of 16 outputs. Meanwhile `ahead_lines` cache lines per block are prefetched from `ahead` on: memory is then
// busy during all tiles of a group.
using QuantisedTile = void (*)(const std::byte* w, const Q8Block* x, int32_t blocks, float* y, int64_t ldy,
                               bool add, const std::byte* ahead, int32_t ahead_lines);
using FloatTile = void (*)(const std::byte* w, const float* x, int64_t ldx, int32_t k, float* y, int64_t ldy,
                           bool add);

struct MatmulBodies {
  static constexpr int kQuantisedLayouts = 6, kFloatLayouts = 3;
  QuantisedTile quantised[kQuantisedLayouts][ActivationTiles::kMaxRows];  // [layout - kW4][rows - 1]
  FloatTile floats[kFloatLayouts][ActivationTiles::kMaxRows];
};

struct RowBodies {
  float (*sum_squares)(const float* x, int32_t n);
  // y = (x * r) * weight; y may be x. The second form is for weight = all ones.
  void (*scale)(const float* x, float r, const float* weight, int32_t n, float* y);
  void (*scale_only)(const float* x, float r, int32_t n, float* y);
  // y += x
  void (*add)(const float* x, int32_t n, float* y);
  // Block b goes to out[b * stride]; what it rounds away, x - s * q (two roundings), to low[b * stride]
  // unless low is null.
  void (*quantise)(const float* x, int32_t blocks, Q8Block* out, Q8Block* low, int64_t stride);
  void (*gated[2])(const float* gate, const float* up, int32_t n, float* y);  // [Activation]
  // `n` heads of `dim` floats behind one another: RMS norm with `weight` first, unless it is null.
  void (*rope[2])(float* heads, int32_t n, int32_t dim, const float* weight, float eps, const float* cos_sin,
                  int32_t half);  // [RopeStyle]
  // A row of K or V, n a multiple of 16; returns its scale (1 where rows have none).
  float (*to_kv[3])(const float* x, int32_t n, std::byte* out);  // [KvDtype]
};

// Attention of `rows` consecutive positions of one sequence, `group` query heads that share a KV head; rows *
// group <= kMaxQueries and head_dim <= kMaxHeadDim (kernels/ops.h).
struct AttentionJob {
  static constexpr int32_t kMaxQueries = 64, kMaxRows = 8;
  const float* q;  // (row, head in group, d) at q[row * q_row + head * head_dim + d]
  int64_t q_row;
  int32_t rows, group, head_dim, pos_begin, window;
  float scale;
  const std::byte *k, *v;  // this KV head's part of page 0 (KvLayer of kernels/ops.h)
  const int32_t* pages;    // page of position p is pages[p / page_size]
  int32_t page_size;
  int32_t row_bytes;               // elements of a position
  int64_t page_stride;             // bytes between pages
  int32_t begin_block, end_block;  // the KV blocks (64 positions) to walk through
  float* partials;  // null: `out` gets the blocks combined; else each has a place, partial_floats() apart
  float* out;       // like q
  int64_t out_row;
  float* scratch;  // scratch_floats(head_dim), 64-byte aligned
  const AttentionJob*
      next;   // whose first KV block this one prefetches, or null; only KV, positions and window are read
  bool cold;  // nobody has prefetched this one

  // Of one block: [query][head_dim] sums of values, [query] maxima, [query] sums of weights.
  static constexpr int64_t partial_floats(int32_t queries, int32_t head_dim) {
    return (int64_t(queries) * (head_dim + 2) + 15) / 16 * 16;
  }
  static constexpr int64_t scratch_floats(int32_t head_dim) {
    return int64_t(kMaxQueries) * head_dim + kMaxQueries * 64 + 16 * int64_t(head_dim);
  }
};

struct AttentionBodies {
  void (*attend[3])(const AttentionJob&);  // [KvDtype]
  // The partials of all blocks into `out`; reads no K or V.
  void (*combine)(const AttentionJob&);
};

extern const MatmulBodies kAvx512Matmul, kAvx2Matmul, kNeonMatmul;
extern const RowBodies kAvx512Rows, kAvx2Rows, kNeonRows;
extern const AttentionBodies kAvx512Attention, kAvx2Attention, kNeonAttention;

}  // namespace gapless
