// Matmul tiles, NEON with dot product. Order of arithmetic: kernels/quant.h. A tile of R rows is walked in
// pieces of up to kRows rows x 16 outputs.
//
// sdot multiplies four bytes of a register by four of a lane of another: a block's activations are two
// registers per row, and no broadcast is needed. In a piece of 4 rows, 16 registers hold sums, 8 activations,
// 4 the dots of one quarter of the outputs. sdot wants two signed operands: bytes stored + 128 lose their 128
// by an exclusive or, once for all rows of a piece.
#include "kernels/cpu/bodies.h"
#include "kernels/cpu/vec_neon.h"

namespace gapless {
namespace {

#define UNROLL _Pragma("GCC unroll 16")

constexpr int kRows = 4;

// The values of quarter c of the outputs, of 16 that begin at p.
inline float32x4_t halves(const std::byte* p, int c) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * c)));
}
inline float32x4_t floats(const std::byte* p, int c) {
  return vld1q_f32(reinterpret_cast<const float*>(p) + 4 * c);
}
inline uint8x16_t quarter(const std::byte* p) {
  return vld1q_u8(reinterpret_cast<const uint8_t*>(p));
}

// Where the parts of a block are, by layout (kernels/quant.h).
struct W4 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 320; }
  static float32x4_t d(const std::byte* w, int32_t b, int c) { return halves(quants(w, b) + 256, c); }
  static float32x4_t m(const std::byte* w, int32_t b, int c) { return halves(quants(w, b) + 288, c); }
};
struct W4F32 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 384; }
  static float32x4_t d(const std::byte* w, int32_t b, int c) { return floats(quants(w, b) + 256, c); }
  static float32x4_t m(const std::byte* w, int32_t b, int c) { return floats(quants(w, b) + 320, c); }
};
struct W8 {
  static constexpr bool kMinimum = false;
  static const std::byte* pair(const std::byte* w, int32_t b) { return w + int64_t(b / 2) * 1088; }
  static const std::byte* quants(const std::byte* w, int32_t b) { return pair(w, b) + b % 2 * 512; }
  static float32x4_t d(const std::byte* w, int32_t b, int c) {
    return halves(pair(w, b) + 1024 + b % 2 * 32, c);
  }
  static float32x4_t m(const std::byte*, int32_t, int) { return vdupq_n_f32(0.f); }
};
struct W8Min {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 576; }
  static float32x4_t d(const std::byte* w, int32_t b, int c) { return halves(quants(w, b) + 512, c); }
  static float32x4_t m(const std::byte* w, int32_t b, int c) { return halves(quants(w, b) + 544, c); }
};
struct W8MinF32 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 640; }
  static float32x4_t d(const std::byte* w, int32_t b, int c) { return floats(quants(w, b) + 512, c); }
  static float32x4_t m(const std::byte* w, int32_t b, int c) { return floats(quants(w, b) + 576, c); }
};

// Bytes j and j + 1 ... of a quarter's four outputs: elements 4j .. 4j+3 and 16+4j .. 16+4j+3 of each.
struct Nibbles {
  static void pair(const std::byte* q, int j, int8x16_t& first, int8x16_t& second) {
    const uint8x16_t v = quarter(q + 64 * j);
    first = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
    second = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
  }
};
struct Bytes {
  static int8x16_t signed_bytes(const std::byte* p) {
    return vreinterpretq_s8_u8(veorq_u8(quarter(p), vdupq_n_u8(0x80)));
  }
  static void pair(const std::byte* q, int j, int8x16_t& first, int8x16_t& second) {
    first = signed_bytes(q + 64 * j);
    second = signed_bytes(q + 256 + 64 * j);
  }
};

template <int R>
inline void store_rows(const V (&acc)[R], float* y, int64_t ldy, bool add_to) {
  UNROLL for (int r = 0; r < R; r++) store(y + r * ldy, add_to ? add(load(y + r * ldy), acc[r]) : acc[r]);
}

// acc = fma(d * s, float(dot), acc); lane 0 of s is the scale, lane 1 scale * sum, as in Q8Block.
inline float32x4_t scale(float32x4_t acc, float32x4_t d, float32x2_t s, int32x4_t dot) {
  return vfmaq_f32(acc, vmulq_lane_f32(d, s, 0), vcvtq_f32_s32(dot));
}

template <int R>
struct Activations {
  int8x16_t first[R], second[R];
  float32x2_t s[R];
  explicit Activations(const Q8Block* x) {
    UNROLL for (int r = 0; r < R; r++) {
      first[r] = vld1q_s8(x[r].q);
      second[r] = vld1q_s8(x[r].q + 16);
      s[r] = vld1_f32(&x[r].s);
    }
  }
};

// Dots of elements 0..15 and of 16..31 of the outputs of a quarter; both may be the same array.
template <class Weights, int R>
inline void quarter_dots(const std::byte* q, const Activations<R>& x, int32x4_t (&a)[R], int32x4_t (&b)[R]) {
  int8x16_t first, second;
#define STEP(j)                                           \
  Weights::pair(q, j, first, second);                     \
  UNROLL for (int r = 0; r < R; r++) {                    \
    a[r] = vdotq_laneq_s32(a[r], first, x.first[r], j);   \
    b[r] = vdotq_laneq_s32(b[r], second, x.second[r], j); \
  }
  STEP(0) STEP(1) STEP(2) STEP(3)
#undef STEP
}

template <class L, class Weights>
struct OneScale {
  template <int R>
  static void block(V (&acc)[R], const std::byte* w, int32_t b, const Q8Block* x) {
    const Activations<R> activations(x);
    UNROLL for (int c = 0; c < 4; c++) {
      int32x4_t dot[R];
      UNROLL for (int r = 0; r < R; r++) dot[r] = vdupq_n_s32(0);
      quarter_dots<Weights, R>(L::quants(w, b) + 16 * c, activations, dot, dot);
      const float32x4_t d = L::d(w, b, c), m = L::m(w, b, c);
      UNROLL for (int r = 0; r < R; r++) {
        float32x4_t& sum = acc[r].part[c];
        sum = scale(sum, d, activations.s[r], dot[r]);
        if (L::kMinimum) sum = vfmaq_lane_f32(sum, m, activations.s[r], 1);
      }
    }
  }
};

// Two scales per block: elements 0..15, then 16..31.
struct Group16 {
  template <int R>
  static void block(V (&acc)[R], const std::byte* w, int32_t b, const Q8Block* x) {
    const std::byte* q = w + int64_t(b) * 640;
    const Activations<R> activations(x);
    UNROLL for (int c = 0; c < 4; c++) {
      int32x4_t dot0[R], dot1[R];
      UNROLL for (int r = 0; r < R; r++) dot0[r] = dot1[r] = vdupq_n_s32(0);
      quarter_dots<Bytes, R>(q + 16 * c, activations, dot0, dot1);
      const float32x4_t d0 = floats(q + 512, c), d1 = floats(q + 576, c);
      UNROLL for (int r = 0; r < R; r++) {
        float32x4_t& sum = acc[r].part[c];
        sum = scale(sum, d0, activations.s[r], dot0[r]);
        sum = scale(sum, d1, activations.s[r], dot1[r]);
      }
    }
  }
};

template <class B, int R>
inline void rows(const std::byte* w, const Q8Block* x, int32_t stride, int32_t blocks, float* y, int64_t ldy,
                 bool add_to) {
  V acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = zero();
  for (int32_t b = 0; b < blocks; b++, x += stride) B::template block<R>(acc, w, b, x);
  store_rows<R>(acc, y, ldy, add_to);
}

// Prefetching is left to the hardware.
template <class B, int R>
void quantised_tile(const std::byte* w, const Q8Block* x, int32_t blocks, float* y, int64_t ldy, bool add_to,
                    const std::byte*, int32_t) {
  int r = 0;
  for (; r + kRows <= R; r += kRows) rows<B, kRows>(w, x + r, R, blocks, y + r * ldy, ldy, add_to);
  if constexpr (R % kRows != 0) rows<B, R % kRows>(w, x + r, R, blocks, y + r * ldy, ldy, add_to);
}

struct F32 {
  static constexpr int64_t kBytes = 64;
  static V load_lanes(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int64_t kBytes = 32;
  static V load_lanes(const std::byte* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};
struct BF16 {
  static constexpr int64_t kBytes = 32;
  static V load_lanes(const std::byte* p) { return load_bf16(reinterpret_cast<const uint16_t*>(p)); }
};

template <class L, int R>
inline void float_rows(const std::byte* w, const float* x, int64_t ldx, int32_t k, float* y, int64_t ldy,
                       bool add_to) {
  V acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = zero();
  for (int32_t i = 0; i < k; i++, w += L::kBytes) {
    const V v = L::load_lanes(w);
    UNROLL for (int r = 0; r < R; r++) acc[r] = fma(v, set1(x[r * ldx + i]), acc[r]);
  }
  store_rows<R>(acc, y, ldy, add_to);
}

template <class L, int R>
void float_tile(const std::byte* w, const float* x, int64_t ldx, int32_t k, float* y, int64_t ldy,
                bool add_to) {
  int r = 0;
  for (; r + kRows <= R; r += kRows) float_rows<L, kRows>(w, x + r * ldx, ldx, k, y + r * ldy, ldy, add_to);
  if constexpr (R % kRows != 0) float_rows<L, R % kRows>(w, x + r * ldx, ldx, k, y + r * ldy, ldy, add_to);
}

#define ROWS(f, ...)                                                                                    \
  {                                                                                                     \
    f<__VA_ARGS__, 1>, f<__VA_ARGS__, 2>, f<__VA_ARGS__, 3>, f<__VA_ARGS__, 4>, f<__VA_ARGS__, 5>,      \
        f<__VA_ARGS__, 6>, f<__VA_ARGS__, 7>, f<__VA_ARGS__, 8>, f<__VA_ARGS__, 9>, f<__VA_ARGS__, 10>, \
        f<__VA_ARGS__, 11>, f<__VA_ARGS__, 12>, f<__VA_ARGS__, 13>, f<__VA_ARGS__, 14>                  \
  }
#define TILES(L, W) ROWS(quantised_tile, OneScale<L, W>)

}  // namespace

constinit const MatmulBodies kNeonMatmul = {
    {TILES(W4, Nibbles), TILES(W4F32, Nibbles), TILES(W8, Bytes), TILES(W8Min, Bytes), TILES(W8MinF32, Bytes),
     ROWS(quantised_tile, Group16)},
    {ROWS(float_tile, F32), ROWS(float_tile, F16), ROWS(float_tile, BF16)}};

}  // namespace gapless
