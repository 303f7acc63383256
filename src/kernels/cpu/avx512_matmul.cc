// Matmul tiles of R rows x 16 outputs in registers, AVX-512 VNNI. Order of arithmetic: kernels/quant.h.
//
// Cost per row, block and tile on Zen 4 and 5: vpdpbusd, mul and fma share two pipes; 8 vpdpbusd + mul + fma
// + fma (minimum) = 11 slots for nibbles (at most 73 % of the vpdpbusd roof), 10 for int8 (80 %). Conversions
// and broadcasts from memory are free.
//
// Measured on one Zen 5 core (roof 1002 GOP/s, about 40 GB/s), weights from memory. Q4_1, K 576, N 1536: 1
// row 40.7 GB/s, 8 rows 668 GOP/s, 32 rows 749, 256 rows 741. Q8_0, K 576, N 49152: 1 row 39.7 GB/s, 8 rows
// 597 GOP/s, 32 rows 727.
#include <immintrin.h>

#include "kernels/cpu/bodies.h"

namespace gapless {
namespace {

#define UNROLL _Pragma("GCC unroll 16")

// gcc 12 does not fold the broadcast into the instruction by itself; without that 14 rows would spill.
inline void dot4(__m512i& acc, __m512i u8, const int8_t* s8) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(u8), "m"(*reinterpret_cast<const int32_t*>(s8)));
}
// The same where both halves of a block use a value of the row: gcc would keep 14 of them, and spill.
inline void subtract(__m512i& a, const int32_t& b) {
  asm("vpsubd %1%{1to16%}, %0, %0" : "+v"(a) : "m"(b));
}
inline __m512 times(__m512 a, const float& b) {
  __m512 product;
  asm("vmulps %2%{1to16%}, %1, %0" : "=v"(product) : "v"(a), "m"(b));
  return product;
}
inline __m512i vector(const std::byte* p) {
  return _mm512_load_si512(p);
}
inline __m512 halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512 floats(const std::byte* p) {
  return _mm512_load_ps(p);
}

struct Ahead {
  const std::byte* p;
  int32_t lines;
  void next() {
    for (int32_t i = 0; i < lines; i++, p += 64) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
};

// Where the parts of a block are, by layout (kernels/quant.h).
struct W4 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 320; }
  static __m512 d(const std::byte* w, int32_t b) { return halves(quants(w, b) + 256); }
  static __m512 m(const std::byte* w, int32_t b) { return halves(quants(w, b) + 288); }
};
struct W4F32 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 384; }
  static __m512 d(const std::byte* w, int32_t b) { return floats(quants(w, b) + 256); }
  static __m512 m(const std::byte* w, int32_t b) { return floats(quants(w, b) + 320); }
};
struct W8 {
  static constexpr bool kMinimum = false;
  static const std::byte* pair(const std::byte* w, int32_t b) { return w + int64_t(b / 2) * 1088; }
  static const std::byte* quants(const std::byte* w, int32_t b) { return pair(w, b) + b % 2 * 512; }
  static __m512 d(const std::byte* w, int32_t b) { return halves(pair(w, b) + 1024 + b % 2 * 32); }
  static __m512 m(const std::byte*, int32_t) { return _mm512_setzero_ps(); }
};
struct W8Min {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 576; }
  static __m512 d(const std::byte* w, int32_t b) { return halves(quants(w, b) + 512); }
  static __m512 m(const std::byte* w, int32_t b) { return halves(quants(w, b) + 544); }
};
struct W8MinF32 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 640; }
  static __m512 d(const std::byte* w, int32_t b) { return floats(quants(w, b) + 512); }
  static __m512 m(const std::byte* w, int32_t b) { return floats(quants(w, b) + 576); }
};

struct W8Group16F32 {
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 640; }
};

// The lines of y that a tile writes were read by other cores as a rule: to fetch them for writing takes as
// long as a small tile, so it begins before the tile does.
template <int R>
inline void own(float* y, int64_t ldy) {
  UNROLL for (int r = 0; r < R; r++) asm volatile("prefetchw %0" ::"m"(y[r * ldy]));
}

template <int R>
inline void store(const __m512 (&acc)[R], float* y, int64_t ldy, bool add) {
  if (add) {
    UNROLL for (int r = 0; r < R; r++)
        _mm512_storeu_ps(y + r * ldy, _mm512_add_ps(_mm512_loadu_ps(y + r * ldy), acc[r]));
  } else {
    UNROLL for (int r = 0; r < R; r++) _mm512_storeu_ps(y + r * ldy, acc[r]);
  }
}

// acc = fma(d * s_x, float(dot), acc), then the minimum.
template <class L, int R>
inline void scale_block(__m512 (&acc)[R], const __m512i (&dot)[R], const std::byte* w, int32_t b,
                        const Q8Block* x) {
  const __m512 d = L::d(w, b), m = L::m(w, b);
  UNROLL for (int r = 0; r < R; r++) {
    acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x[r].s)), _mm512_cvtepi32_ps(dot[r]), acc[r]);
    if (L::kMinimum) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(x[r].s_sum), acc[r]);
  }
}

template <class L, int R>
void nibble_tile(const std::byte* w, const Q8Block* x, int32_t blocks, float* y, int64_t ldy, bool add,
                 const std::byte* ahead, int32_t ahead_lines) {
  __m512 acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  const __m512i low = _mm512_set1_epi8(15);
  Ahead prefetch{ahead, ahead_lines};
  own<R>(y, ldy);
  for (int32_t b = 0; b < blocks; b++, x += R) {
    __m512i dot[R];
    UNROLL for (int r = 0; r < R; r++) dot[r] = _mm512_setzero_si512();
    prefetch.next();
    UNROLL for (int j = 0; j < 4; j++) {
      const __m512i v = vector(L::quants(w, b) + 64 * j);
      const __m512i lo = _mm512_and_si512(v, low), hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
      UNROLL for (int r = 0; r < R; r++) dot4(dot[r], lo, x[r].q + 4 * j);
      UNROLL for (int r = 0; r < R; r++) dot4(dot[r], hi, x[r].q + 16 + 4 * j);
    }
    scale_block<L, R>(acc, dot, w, b, x);
  }
  store<R>(acc, y, ldy, add);
}

// Weights are stored + 128: the dot starts from -128 * sum(x), which is exact and costs nothing.
template <class L, int R>
void byte_tile(const std::byte* w, const Q8Block* x, int32_t blocks, float* y, int64_t ldy, bool add,
               const std::byte* ahead, int32_t ahead_lines) {
  __m512 acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  Ahead prefetch{ahead, ahead_lines};
  own<R>(y, ldy);
  for (int32_t b = 0; b < blocks; b++, x += R) {
    __m512i dot[R];
    UNROLL for (int r = 0; r < R; r++) dot[r] = _mm512_set1_epi32(x[r].minus128_sum);
    prefetch.next();
    UNROLL for (int j = 0; j < 8; j++) {
      const __m512i v = vector(L::quants(w, b) + 64 * j);
      UNROLL for (int r = 0; r < R; r++) dot4(dot[r], v, x[r].q + 4 * j);
    }
    scale_block<L, R>(acc, dot, w, b, x);
  }
  store<R>(acc, y, ldy, add);
}

// Two scales per block: elements 0..15, then 16..31.
template <class L, int R>
void group16_tile(const std::byte* w, const Q8Block* x, int32_t blocks, float* y, int64_t ldy, bool add,
                  const std::byte* ahead, int32_t ahead_lines) {
  __m512 acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  Ahead prefetch{ahead, ahead_lines};
  own<R>(y, ldy);
  for (int32_t b = 0; b < blocks; b++, x += R) {
    prefetch.next();
    const std::byte* q = L::quants(w, b);
    UNROLL for (int half = 0; half < 2; half++) {
      __m512i dot[R];
      UNROLL for (int r = 0; r < R; r++) {
        dot[r] = _mm512_set1_epi32(half ? x[r].minus128_sum : x[r].minus128_half);
        if (half) subtract(dot[r], x[r].minus128_half);
      }
      UNROLL for (int j = 0; j < 4; j++) {
        const __m512i v = vector(q + 256 * half + 64 * j);
        UNROLL for (int r = 0; r < R; r++) dot4(dot[r], v, x[r].q + 16 * half + 4 * j);
      }
      const __m512 d = floats(q + 512 + 64 * half);
      UNROLL for (int r = 0; r < R; r++) acc[r] =
          _mm512_fmadd_ps(times(d, x[r].s), _mm512_cvtepi32_ps(dot[r]), acc[r]);
    }
  }
  store<R>(acc, y, ldy, add);
}

struct F32 {
  static constexpr int64_t kBytes = 64;
  static __m512 load(const std::byte* p) { return floats(p); }
};
struct F16 {
  static constexpr int64_t kBytes = 32;
  static __m512 load(const std::byte* p) { return halves(p); }
};
struct BF16 {
  static constexpr int64_t kBytes = 32;
  static __m512 load(const std::byte* p) {
    const __m256i h = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
};

template <class L, int R>
void float_tile(const std::byte* w, const float* x, int64_t ldx, int32_t k, float* y, int64_t ldy, bool add) {
  __m512 acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  for (int32_t i = 0; i < k; i++, w += L::kBytes) {
    const __m512 v = L::load(w);
    UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_fmadd_ps(v, _mm512_set1_ps(x[r * ldx + i]), acc[r]);
  }
  store<R>(acc, y, ldy, add);
}

#define ROWS(f, L)                                                                                       \
  {                                                                                                      \
    f<L, 1>, f<L, 2>, f<L, 3>, f<L, 4>, f<L, 5>, f<L, 6>, f<L, 7>, f<L, 8>, f<L, 9>, f<L, 10>, f<L, 11>, \
        f<L, 12>, f<L, 13>, f<L, 14>                                                                     \
  }

}  // namespace

constinit const MatmulBodies kAvx512Matmul = {
    {ROWS(nibble_tile, W4), ROWS(nibble_tile, W4F32), ROWS(byte_tile, W8), ROWS(byte_tile, W8Min),
     ROWS(byte_tile, W8MinF32), ROWS(group16_tile, W8Group16F32)},
    {ROWS(float_tile, F32), ROWS(float_tile, F16), ROWS(float_tile, BF16)}};

}  // namespace gapless
