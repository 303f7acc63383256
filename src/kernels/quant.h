// Weights and activations as the matmul kernels read them.
//
// Contract of a quantised matmul, for every output element, blocks of 32 along K in ascending order b = 0, 1,
// ...:
//     dot  = sum of q_w * q_x over the block            (int32, exact: any order inside is the same)
//     acc  = fma(d * s_x, float(dot), acc)              (d * s_x rounded once to float32)
//     acc  = fma(m, s_x * sum(q_x), acc)                (layouts with a minimum only; s_x * sum rounded once,
//     when quantising)
// Layouts with two scales per block (kGroup16) do the first two lines for elements 0..15, then for 16..31.
// Nothing else touches acc, so a row's bits depend neither on the other rows, nor on tiles, threads or
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless {

// Tensor element types, numbered as in GGUF files.
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30
};

// 32 activations of one row: x is about s * q, s = absmax / 127 (all zero: s = 0).
struct alignas(16) Q8Block {
  int8_t q[32];
  float s;                // scale
  float s_sum;            // s * sum(q)
  int32_t minus128_sum;   // -128 * sum(q): kernels that store int8 weights as unsigned bytes start their dot
                          // from it
  int32_t minus128_half;  // -128 * sum(q[0..15])
};
static_assert(sizeof(Q8Block) == 48);

// M rows are cut into tiles of at most kMaxRows rows (balanced: 32 = 10 + 11 + 11); blocks lie in the order
// [tile][block][row in tile], so that a kernel reads all rows of a tile through one pointer and constant
// offsets.
struct ActivationTiles {
  static constexpr int kMaxRows = 14;  // 14 sums + 14 dots + 2 weight vectors + mask + scratch = 32 registers
  int m, n;
  explicit ActivationTiles(int m) : m(m), n((m + kMaxRows - 1) / kMaxRows) {}
  int first(int t) const { return int(int64_t(m) * t / n); }
  int rows(int t) const { return first(t + 1) - first(t); }
  // Index of (row, block 0) and the step to that row's next block, for rows of `blocks` blocks.
  struct Place {
    size_t first, stride;
  };
  Place place(int row, int blocks) const;
};

// How a packed matrix is stored. 16 rows of W (= 16 outputs) form a group; the last group is padded with
// zeros. In a quantised block, lane c of every vector belongs to output c of the group, and the scales travel
// in the same stream as the weights (in a table of their own, one row reads 25 GB/s instead of 45):
//   nibbles  4 vectors of 64 bytes: vector j, lane c = elements 4j .. 4j+3 in the low nibbles, 16+4j ..
//   16+4j+3 in the high ones int8     8 vectors of 64 bytes: vector j, lane c = elements 4j .. 4j+3, stored +
//   128 (vpdpbusd wants one unsigned operand) scales   16 values, one per output
enum class PackedLayout : uint8_t {
  kF32,          // [group][k][16] float
  kF16,          // [group][k][16] f16
  kBF16,         // [group][k][16] bf16
  kW4,           // nibbles, f16 d, f16 m       320 bytes a block    Q4_0 (m = -8 d), Q4_1
  kW4F32,        // nibbles, f32 d, f32 m       384                  Q4_K
  kW8,           // int8, int8, f16 d, f16 d    1088 per two blocks  Q8_0, Q5_0
  kW8Min,        // int8, f16 d, f16 m          576                  Q5_1
  kW8MinF32,     // int8, f32 d, f32 m          640                  Q5_K
  kW8Group16F32  // int8, f32 d of elements 0..15, f32 d of 16..31   640   Q6_K
};

// A weight matrix W[n, k], repacked. A view: whoever loaded it owns the memory, 64-byte aligned. Kernels read
// nothing past its end (prefetches may point there, which is harmless).
struct PackedMatrix {
  PackedLayout layout = PackedLayout::kF32;
  int32_t n = 0;  // outputs (rows of W)
  int32_t k = 0;  // inputs; a multiple of 32 for quantised layouts
  const std::byte* data = nullptr;

  int32_t groups() const { return (n + 15) / 16; }
  int32_t padded_n() const { return groups() * 16; }
  bool quantised() const { return layout > PackedLayout::kBF16; }
};

// Bytes of a packed matrix; group_bytes is the distance between groups (a multiple of 64).
size_t packed_group_bytes(PackedLayout layout, int32_t k);
size_t packed_bytes(PackedLayout layout, int32_t n, int32_t k);
PackedLayout packed_layout_for(DType type);
// Elements per block and bytes per block of a GGUF tensor type.
struct DTypeInfo {
  const char* name;
  int32_t block, bytes;
};
// nullptr: not supported.
const DTypeInfo* dtype_info(uint32_t gguf_type);

// Repacks rows row_begin .. row_begin + rows - 1 of a tensor (row-major GGUF blocks in `source`, starting at
// row_begin) into `packed`, which is laid out for the whole matrix [n, k]. row_begin must be a multiple of
// 16; several matrices that share an input (q, k, v; gate, up) can be packed behind one another into one,
// each at its own multiple of 16.
void pack_rows(DType type, const std::byte* source, int32_t rows, PackedMatrix packed, int32_t row_begin,
               std::byte* data);

// Row-major GGUF blocks to float32; count is a multiple of the block. The values of ggml's dequantize_row_*,
// except that Q4_0's zeros are always +0.
void dequantise(DType type, const std::byte* source, int64_t count, float* out);
// Row `row` of a packed matrix to float32 (embedding lookup of a tied table): the same values as
// dequantise().
void dequantise_packed_row(const PackedMatrix& w, int32_t row, float* out);

// The one way floats become int8: s = absmax / 127, which is returned, q = round-to-nearest-even(x * (127 /
// absmax)). A row with absmax below 2^-100 is zero, s as well; one with a NaN or infinity has s = NaN and q =
// 0, so that the fault shows in every output that reads it.
float quantise_row(const float* x, int32_t n, int8_t* q);
// Activations: quantise_row of 32 elements, and the sums.
void quantise_block(const float* x, Q8Block& out);

// One block of 32 elements along K: element i is d[i / 16] * q[i], plus m where the type has a minimum.
struct UnpackedBlock {
  int8_t q[32];
  float d[2];
  float m;
};
bool has_minimum(PackedLayout layout);
// Block b of row `row` of a quantised packed matrix: how reference loops read weights.
void read_packed_block(const PackedMatrix& w, int32_t row, int32_t b, UnpackedBlock& out);

}  // namespace gapless
