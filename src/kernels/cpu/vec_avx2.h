// 16 float lanes in two AVX2 registers (with FMA and F16C). The same names as cpu/vec_avx512.h.
#pragma once

#include <immintrin.h>

#include "kernels/numeric.h"
#include "kernels/quant.h"

namespace gapless {
namespace {

struct V {
  __m256 lo, hi;
};

// What attention keeps in registers: queries x vectors of head_dim while it sums values (12 sums of 16
// registers), queries x vectors of 16 positions while it computes scores.
constexpr int kPvQueries = 3, kPvVectors = 2, kQkVectors = 2;

// Brings p's cache line near; p may point anywhere. Not the builtin: gcc 12 takes a function that only
// prefetches for one without effect and drops the call.
inline void fetch(const void* p) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(p)));
}

inline V zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline V set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline V load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, V v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
// All ones in lanes below n, which may be outside 0..8.
inline __m256i below(int32_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline V load_first(const float* p, int32_t n) {
  return {_mm256_maskload_ps(p, below(n)),
          n > 8 ? _mm256_maskload_ps(p + 8, below(n - 8)) : _mm256_setzero_ps()};
}
inline void store_first(float* p, V v, int32_t n) {
  _mm256_maskstore_ps(p, below(n), v.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, below(n - 8), v.hi);
}

inline V add(V a, V b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline V sub(V a, V b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline V mul(V a, V b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline V div(V a, V b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline V max(V a, V b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline V min(V a, V b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline V fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline V neg(V a) {
  const __m256 sign = _mm256_set1_ps(-0.f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}

// Lanes from .. to - 1 of v, minus infinity in the others.
inline V only(V v, int32_t from, int32_t to) {
  const __m256 out = _mm256_set1_ps(-__builtin_inff());
  const __m256i lo = _mm256_andnot_si256(below(from), below(to)),
                hi = _mm256_andnot_si256(below(from - 8), below(to - 8));
  return {_mm256_blendv_ps(out, v.lo, _mm256_castsi256_ps(lo)),
          _mm256_blendv_ps(out, v.hi, _mm256_castsi256_ps(hi))};
}

inline float tree_sum(V v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float max_lane(V v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

// p * 2^n with n = the integer that exp() left in the low bits of t; in two factors, as numeric::exp.
inline __m256 scale_by_power(__m256 p, __m256 t) {
  const __m256i round = _mm256_castps_si256(_mm256_set1_ps(numeric::exp_constants::kRound));
  const __m256i e = _mm256_sub_epi32(_mm256_castps_si256(t), round), e1 = _mm256_srai_epi32(e, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(e1, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, e1), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
inline V scale_by_power(V p, V, V t) {
  return {scale_by_power(p.lo, t.lo), scale_by_power(p.hi, t.hi)};
}

inline __m128i load_8(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline V load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(load_8(p)), _mm256_cvtph_ps(load_8(p + 8))};
}
inline V load_bf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8(p + 8)), 16))};
}
// 16 int8, as floats.
inline V load_i8(const int8_t* p) {
  const __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))};
}
// Rounded to the nearest even integer; every lane is within -128 .. 127.
inline void store_i8(int8_t* p, V v) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}
inline void store_f16(uint16_t* p, V v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256i to_bf16_bits(__m256 v) {
  const __m256i b = _mm256_castps_si256(v), high = _mm256_srli_epi32(b, 16);
  const __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i r =
      _mm256_srli_epi32(_mm256_add_epi32(b, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
inline void store_bf16(uint16_t* p, V v) {
  const __m256i packed = _mm256_packus_epi32(to_bf16_bits(v.lo), to_bf16_bits(v.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}

// a[2i] and a[2i + 1] of 16 floats.
inline void deinterleave(__m256 a, __m256 b, __m256& even, __m256& odd) {
  const __m256d e = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)),
                o = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xDD));
  even = _mm256_castpd_ps(_mm256_permute4x64_pd(e, 0xD8));
  odd = _mm256_castpd_ps(_mm256_permute4x64_pd(o, 0xD8));
}
inline void deinterleave(const float* p, V& even, V& odd) {
  const V a = load(p), b = load(p + 16);
  deinterleave(a.lo, a.hi, even.lo, odd.lo);
  deinterleave(b.lo, b.hi, even.hi, odd.hi);
}
// Pairs (a, b) turned by (cos, sin): (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)).
inline __m256 turn_pairs(__m256 x, __m256 cos_sin) {
  const __m256 swapped = _mm256_permute_ps(x, 0xB1);
  return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(cos_sin),
                            _mm256_mul_ps(swapped, _mm256_movehdup_ps(cos_sin)));
}
inline V turn_pairs(V x, V cos_sin) {
  return {turn_pairs(x.lo, cos_sin.lo), turn_pairs(x.hi, cos_sin.hi)};
}

inline int32_t sum_lanes(__m256i v) {
  const __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i b = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}
// 32 floats with magnitude at most absmax, which is at least 2^-100 and finite.
inline void quantise_finite(const float* x, float absmax, Q8Block& out) {
  const __m256 inverse = _mm256_set1_ps(127.f / absmax);
  __m256i q[4];
  for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
  const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // the packs work within 128-bit halves
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), _mm256_permutevar8x32_epi32(words, order));
  const int32_t half = sum_lanes(_mm256_add_epi32(q[0], q[1])),
                sum = half + sum_lanes(_mm256_add_epi32(q[2], q[3]));
  out.s = absmax / 127.f;
  out.s_sum = out.s * float(sum);
  out.minus128_sum = -128 * sum;
  out.minus128_half = -128 * half;
}
// The largest magnitude among 32 floats, as bits: a NaN is above infinity.
inline uint32_t absmax_bits(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i m = _mm256_setzero_si256();
  for (int i = 0; i < 32; i += 8)
    m = _mm256_max_epi32(
        m, _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)), magnitude));
  const __m128i a = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  const __m128i b = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4E));
  return uint32_t(_mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xB1))));
}

}  // namespace
}  // namespace gapless
