// Matmul tiles, AVX2 with FMA and F16C. Order of arithmetic: kernels/quant.h. A tile of R rows is walked in
// pieces of up to kRows rows x 16 outputs (two registers).
//
// The byte products are exact: nibbles times int8 is at most 15 * 127, so vpmaddubsw cannot saturate and 8 of
// its sums fit in 16 bits; int8 weights take the absolute value and move their sign to the activation (128 *
// 127 * 2 < 2^15).
#include <immintrin.h>

#include "kernels/cpu/bodies.h"

namespace gapless {
namespace {

#define UNROLL _Pragma("GCC unroll 16")

constexpr int kRows = 4;

struct Lanes {
  __m256 lo, hi;
};

inline __m256i vector(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline Lanes halves(const std::byte* p) {
  const __m128i* h = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_load_si128(h)), _mm256_cvtph_ps(_mm_load_si128(h + 1))};
}
inline Lanes floats(const std::byte* p) {
  const float* f = reinterpret_cast<const float*>(p);
  return {_mm256_load_ps(f), _mm256_load_ps(f + 8)};
}
// Four activations, to every lane.
inline __m256i four(const int8_t* q) {
  return _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(q));
}

// Where the parts of a block are, by layout (kernels/quant.h).
struct W4 {
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 320; }
  static Lanes d(const std::byte* w, int32_t b) { return halves(quants(w, b) + 256); }
  static Lanes m(const std::byte* w, int32_t b) { return halves(quants(w, b) + 288); }
};
struct W4F32 {
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 384; }
  static Lanes d(const std::byte* w, int32_t b) { return floats(quants(w, b) + 256); }
  static Lanes m(const std::byte* w, int32_t b) { return floats(quants(w, b) + 320); }
};
struct W8 {
  static constexpr bool kMinimum = false;
  static const std::byte* pair(const std::byte* w, int32_t b) { return w + int64_t(b / 2) * 1088; }
  static const std::byte* quants(const std::byte* w, int32_t b) { return pair(w, b) + b % 2 * 512; }
  static Lanes d(const std::byte* w, int32_t b) { return halves(pair(w, b) + 1024 + b % 2 * 32); }
  static Lanes m(const std::byte*, int32_t) { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
};
struct W8Min {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 576; }
  static Lanes d(const std::byte* w, int32_t b) { return halves(quants(w, b) + 512); }
  static Lanes m(const std::byte* w, int32_t b) { return halves(quants(w, b) + 544); }
};
struct W8MinF32 {
  static constexpr bool kMinimum = true;
  static const std::byte* quants(const std::byte* w, int32_t b) { return w + int64_t(b) * 640; }
  static Lanes d(const std::byte* w, int32_t b) { return floats(quants(w, b) + 512); }
  static Lanes m(const std::byte* w, int32_t b) { return floats(quants(w, b) + 576); }
};

template <int R>
inline void store(const Lanes (&acc)[R], float* y, int64_t ldy, bool add) {
  UNROLL for (int r = 0; r < R; r++) {
    float* to = y + r * ldy;
    Lanes v = acc[r];
    if (add) v = {_mm256_add_ps(_mm256_loadu_ps(to), v.lo), _mm256_add_ps(_mm256_loadu_ps(to + 8), v.hi)};
    _mm256_storeu_ps(to, v.lo);
    _mm256_storeu_ps(to + 8, v.hi);
  }
}

// acc = fma(d * s, float(dot), acc)
inline void scale(Lanes& acc, const Lanes& d, float s, __m256i lo, __m256i hi) {
  const __m256 x = _mm256_set1_ps(s);
  acc.lo = _mm256_fmadd_ps(_mm256_mul_ps(d.lo, x), _mm256_cvtepi32_ps(lo), acc.lo);
  acc.hi = _mm256_fmadd_ps(_mm256_mul_ps(d.hi, x), _mm256_cvtepi32_ps(hi), acc.hi);
}
inline void add_minimum(Lanes& acc, const Lanes& m, float s_sum) {
  const __m256 x = _mm256_set1_ps(s_sum);
  acc.lo = _mm256_fmadd_ps(m.lo, x, acc.lo);
  acc.hi = _mm256_fmadd_ps(m.hi, x, acc.hi);
}

template <class L>
struct Nibbles {
  template <int R>
  static void block(Lanes (&acc)[R], const std::byte* w, int32_t b, const Q8Block* x) {
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i sum[R][2];  // 16-bit pair sums
    UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    const std::byte* q = L::quants(w, b);
    UNROLL for (int j = 0; j < 4; j++) UNROLL for (int side = 0; side < 2; side++) {
      const __m256i v = vector(q + 64 * j + 32 * side);
      const __m256i lo = _mm256_and_si256(v, low), hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
      UNROLL for (int r = 0; r < R; r++) {
        const __m256i a = _mm256_maddubs_epi16(lo, four(x[r].q + 4 * j)),
                      c = _mm256_maddubs_epi16(hi, four(x[r].q + 16 + 4 * j));
        sum[r][side] = _mm256_add_epi16(sum[r][side], _mm256_add_epi16(a, c));
      }
    }
    const Lanes d = L::d(w, b), m = L::m(w, b);
    UNROLL for (int r = 0; r < R; r++) {
      scale(acc[r], d, x[r].s, _mm256_madd_epi16(sum[r][0], ones), _mm256_madd_epi16(sum[r][1], ones));
      add_minimum(acc[r], m, x[r].s_sum);
    }
  }
};

// The dots of vectors j .. j + 3 of bytes, which are stored + 128.
template <int R>
inline void byte_dots(__m256i (&dot)[R][2], const std::byte* q, const Q8Block* x, int k) {
  const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  UNROLL for (int j = 0; j < 4; j++) UNROLL for (int side = 0; side < 2; side++) {
    const __m256i v = _mm256_xor_si256(vector(q + 64 * j + 32 * side), flip), magnitude = _mm256_abs_epi8(v);
    UNROLL for (int r = 0; r < R; r++) {
      const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(four(x[r].q + k + 4 * j), v));
      dot[r][side] = _mm256_add_epi32(dot[r][side], _mm256_madd_epi16(pairs, ones));
    }
  }
}

template <class L>
struct Bytes {
  template <int R>
  static void block(Lanes (&acc)[R], const std::byte* w, int32_t b, const Q8Block* x) {
    __m256i dot[R][2];
    UNROLL for (int r = 0; r < R; r++) dot[r][0] = dot[r][1] = _mm256_setzero_si256();
    byte_dots<R>(dot, L::quants(w, b), x, 0);
    byte_dots<R>(dot, L::quants(w, b) + 256, x, 16);
    const Lanes d = L::d(w, b), m = L::m(w, b);
    UNROLL for (int r = 0; r < R; r++) {
      scale(acc[r], d, x[r].s, dot[r][0], dot[r][1]);
      if (L::kMinimum) add_minimum(acc[r], m, x[r].s_sum);
    }
  }
};

// Two scales per block: elements 0..15, then 16..31.
struct Group16 {
  template <int R>
  static void block(Lanes (&acc)[R], const std::byte* w, int32_t b, const Q8Block* x) {
    const std::byte* q = w + int64_t(b) * 640;
    for (int half = 0; half < 2; half++) {
      __m256i dot[R][2];
      UNROLL for (int r = 0; r < R; r++) dot[r][0] = dot[r][1] = _mm256_setzero_si256();
      byte_dots<R>(dot, q + 256 * half, x, 16 * half);
      const Lanes d = floats(q + 512 + 64 * half);
      UNROLL for (int r = 0; r < R; r++) scale(acc[r], d, x[r].s, dot[r][0], dot[r][1]);
    }
  }
};

template <class B, int R>
inline void rows(const std::byte* w, const Q8Block* x, int32_t stride, int32_t blocks, float* y, int64_t ldy,
                 bool add) {
  Lanes acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int32_t b = 0; b < blocks; b++, x += stride) B::template block<R>(acc, w, b, x);
  store<R>(acc, y, ldy, add);
}

// Prefetching is left to the hardware: at this speed a tile does not outrun it.
template <class B, int R>
void quantised_tile(const std::byte* w, const Q8Block* x, int32_t blocks, float* y, int64_t ldy, bool add,
                    const std::byte*, int32_t) {
  int r = 0;
  for (; r + kRows <= R; r += kRows) rows<B, kRows>(w, x + r, R, blocks, y + r * ldy, ldy, add);
  if constexpr (R % kRows != 0) rows<B, R % kRows>(w, x + r, R, blocks, y + r * ldy, ldy, add);
}

struct F32 {
  static constexpr int64_t kBytes = 64;
  static Lanes load(const std::byte* p) { return floats(p); }
};
struct F16 {
  static constexpr int64_t kBytes = 32;
  static Lanes load(const std::byte* p) { return halves(p); }
};
struct BF16 {
  static constexpr int64_t kBytes = 32;
  static __m256 half(const std::byte* p) {
    const __m128i h = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  static Lanes load(const std::byte* p) { return {half(p), half(p + 16)}; }
};

template <class L, int R>
inline void float_rows(const std::byte* w, const float* x, int64_t ldx, int32_t k, float* y, int64_t ldy,
                       bool add) {
  Lanes acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int32_t i = 0; i < k; i++, w += L::kBytes) {
    const Lanes v = L::load(w);
    UNROLL for (int r = 0; r < R; r++) {
      const __m256 value = _mm256_set1_ps(x[r * ldx + i]);
      acc[r] = {_mm256_fmadd_ps(v.lo, value, acc[r].lo), _mm256_fmadd_ps(v.hi, value, acc[r].hi)};
    }
  }
  store<R>(acc, y, ldy, add);
}

template <class L, int R>
void float_tile(const std::byte* w, const float* x, int64_t ldx, int32_t k, float* y, int64_t ldy, bool add) {
  int r = 0;
  for (; r + kRows <= R; r += kRows) float_rows<L, kRows>(w, x + r * ldx, ldx, k, y + r * ldy, ldy, add);
  if constexpr (R % kRows != 0) float_rows<L, R % kRows>(w, x + r * ldx, ldx, k, y + r * ldy, ldy, add);
}

#define ROWS(f, L)                                                                                       \
  {                                                                                                      \
    f<L, 1>, f<L, 2>, f<L, 3>, f<L, 4>, f<L, 5>, f<L, 6>, f<L, 7>, f<L, 8>, f<L, 9>, f<L, 10>, f<L, 11>, \
        f<L, 12>, f<L, 13>, f<L, 14>                                                                     \
  }

}  // namespace

constinit const MatmulBodies kAvx2Matmul = {
    {ROWS(quantised_tile, Nibbles<W4>), ROWS(quantised_tile, Nibbles<W4F32>), ROWS(quantised_tile, Bytes<W8>),
     ROWS(quantised_tile, Bytes<W8Min>), ROWS(quantised_tile, Bytes<W8MinF32>),
     ROWS(quantised_tile, Group16)},
    {ROWS(float_tile, F32), ROWS(float_tile, F16), ROWS(float_tile, BF16)}};

}  // namespace gapless
