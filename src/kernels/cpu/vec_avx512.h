// 16 float lanes, AVX-512. The same names as cpu/vec_avx2.h; bodies in cpu/*-inl.h are written on them once.
#pragma once

#include <immintrin.h>

#include "kernels/numeric.h"
#include "kernels/quant.h"

namespace gapless {
namespace {

using V = __m512;

// What attention keeps in registers: queries x vectors of head_dim while it sums values (24 sums + 4 values +
// 1 weight), queries x vectors of 16 positions while it computes scores.
constexpr int kPvQueries = 6, kPvVectors = 4, kQkVectors = 4;

// Brings p's cache line near; p may point anywhere. Not the builtin: gcc 12 takes a function that only
// prefetches for one without effect and drops the call.
inline void fetch(const void* p) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(p)));
}

inline V zero() {
  return _mm512_setzero_ps();
}
inline V set1(float x) {
  return _mm512_set1_ps(x);
}
inline V load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, V v) {
  _mm512_storeu_ps(p, v);
}
inline __mmask16 first(int32_t n) {
  return __mmask16((1u << n) - 1);
}
inline V load_first(const float* p, int32_t n) {
  return _mm512_maskz_loadu_ps(first(n), p);
}
inline void store_first(float* p, V v, int32_t n) {
  _mm512_mask_storeu_ps(p, first(n), v);
}

inline V add(V a, V b) {
  return _mm512_add_ps(a, b);
}
inline V sub(V a, V b) {
  return _mm512_sub_ps(a, b);
}
inline V mul(V a, V b) {
  return _mm512_mul_ps(a, b);
}
inline V div(V a, V b) {
  return _mm512_div_ps(a, b);
}
inline V max(V a, V b) {
  return _mm512_max_ps(a, b);
}
inline V min(V a, V b) {
  return _mm512_min_ps(a, b);
}
inline V fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline V neg(V a) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}

// Lanes from .. to - 1 of v, minus infinity in the others.
inline V only(V v, int32_t from, int32_t to) {
  const __mmask16 mask = __mmask16(first(to) & ~first(from));
  return _mm512_mask_blend_ps(mask, set1(-__builtin_inff()), v);
}

inline float tree_sum(V v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

inline float max_lane(V v) {
  return _mm512_reduce_max_ps(v);
}

// p * 2^n with n = the integer that exp() left in t.
inline V scale_by_power(V p, V n, V) {
  return _mm512_scalef_ps(p, n);
}

inline V load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline V load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
// 16 int8, as floats.
inline V load_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Rounded to the nearest even integer; every lane is within -128 .. 127.
inline void store_i8(int8_t* p, V v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
inline void store_f16(uint16_t* p, V v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_bf16(uint16_t* p, V v) {
  const __m512i b = _mm512_castps_si512(v), high = _mm512_srli_epi32(b, 16);
  const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(b, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff))), 16);
  r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
}

// a[2i] and a[2i + 1] of 32 floats.
inline void deinterleave(const float* p, V& even, V& odd) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const V a = load(p), b = load(p + 16);
  even = _mm512_permutex2var_ps(a, at, b);
  odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(at, _mm512_set1_epi32(1)), b);
}
// 8 pairs (a, b) turned by 8 (cos, sin): (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)).
inline V turn_pairs(V x, V cos_sin) {
  const V swapped = _mm512_permute_ps(x, 0xB1);
  return _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(cos_sin),
                            _mm512_mul_ps(swapped, _mm512_movehdup_ps(cos_sin)));
}

// 32 floats with magnitude at most absmax, which is at least 2^-100 and finite.
inline void quantise_finite(const float* x, float absmax, Q8Block& out) {
  const V inverse = set1(127.f / absmax);
  const __m512i a = _mm512_cvtps_epi32(mul(load(x), inverse)),
                b = _mm512_cvtps_epi32(mul(load(x + 16), inverse));
  const __m128i q0 = _mm512_cvtepi32_epi8(a), q1 = _mm512_cvtepi32_epi8(b);
  _mm_store_si128(reinterpret_cast<__m128i*>(out.q), q0);
  _mm_store_si128(reinterpret_cast<__m128i*>(out.q) + 1, q1);
  // Sums of four bytes by the dot product with ones, then of the four sums of either half.
  const __m128i zero = _mm_setzero_si128(), ones = _mm_set1_epi8(1);
  const __m128i pairs = _mm_hadd_epi32(_mm_dpbusd_epi32(zero, ones, q0), _mm_dpbusd_epi32(zero, ones, q1));
  const __m128i halves = _mm_hadd_epi32(pairs, pairs);
  const int32_t half = _mm_cvtsi128_si32(halves), sum = half + _mm_extract_epi32(halves, 1);
  out.s = absmax / 127.f;
  out.s_sum = out.s * float(sum);
  out.minus128_sum = -128 * sum;
  out.minus128_half = -128 * half;
}
// The largest magnitude among 32 floats, as bits: a NaN is above infinity.
inline uint32_t absmax_bits(const float* x) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i a = _mm512_and_si512(_mm512_loadu_si512(x), magnitude);
  const __m512i b = _mm512_and_si512(_mm512_loadu_si512(x + 16), magnitude);
  return uint32_t(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)));
}

}  // namespace
}  // namespace gapless
