// 16 float lanes in four NEON registers. The same names as cpu/vec_avx2.h.
//
// max and min compare and select: the instructions of the same name return a NaN for any NaN, x86's the
// second operand, and the contract (kernels/numeric.h) is x86's.
#pragma once

#include <arm_neon.h>

#include "kernels/numeric.h"
#include "kernels/quant.h"

namespace gapless {
namespace {

struct V {
  float32x4_t part[4];
};

#define EACH_PART _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)

// What attention keeps in registers: queries x vectors of head_dim while it sums values (24 sums + 4 values +
// 1 weight of 32 registers), queries x vectors of 16 positions while it computes scores.
constexpr int kPvQueries = 6, kPvVectors = 1, kQkVectors = 1;

// Brings p's cache line near; p may point anywhere.
inline void fetch(const void* p) {
  asm volatile("prfm pldl2keep, %a0" ::"p"(p));
}

inline V set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
inline V zero() {
  return set1(0.f);
}
inline V load(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
inline void store(float* p, V v) {
  EACH_PART vst1q_f32(p + 4 * i, v.part[i]);
}
// n is in 0..15; the other lanes are 0. Only the last piece of a row of an odd length comes here.
inline V load_first(const float* p, int32_t n) {
  float lanes[16] = {};
  for (int32_t l = 0; l < n; l++) lanes[l] = p[l];
  return load(lanes);
}
inline void store_first(float* p, V v, int32_t n) {
  float lanes[16];
  store(lanes, v);
  for (int32_t l = 0; l < n; l++) p[l] = lanes[l];
}

inline float32x4_t max(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline float32x4_t min(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}

inline V add(V a, V b) {
  EACH_PART a.part[i] = vaddq_f32(a.part[i], b.part[i]);
  return a;
}
inline V sub(V a, V b) {
  EACH_PART a.part[i] = vsubq_f32(a.part[i], b.part[i]);
  return a;
}
inline V mul(V a, V b) {
  EACH_PART a.part[i] = vmulq_f32(a.part[i], b.part[i]);
  return a;
}
inline V div(V a, V b) {
  EACH_PART a.part[i] = vdivq_f32(a.part[i], b.part[i]);
  return a;
}
inline V max(V a, V b) {
  EACH_PART a.part[i] = max(a.part[i], b.part[i]);
  return a;
}
inline V min(V a, V b) {
  EACH_PART a.part[i] = min(a.part[i], b.part[i]);
  return a;
}
inline V fma(V a, V b, V c) {
  EACH_PART c.part[i] = vfmaq_f32(c.part[i], a.part[i], b.part[i]);
  return c;
}
inline V neg(V a) {
  EACH_PART a.part[i] = vnegq_f32(a.part[i]);
  return a;
}

// Lanes from .. to - 1 of v, minus infinity in the others.
inline V only(V v, int32_t from, int32_t to) {
  const float32x4_t out = vdupq_n_f32(-__builtin_inff());
  const int32x4_t first = {0, 1, 2, 3};
  EACH_PART {
    const int32x4_t lane = vaddq_s32(first, vdupq_n_s32(4 * i));
    const uint32x4_t inside = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(from)), vcltq_s32(lane, vdupq_n_s32(to)));
    v.part[i] = vbslq_f32(inside, v.part[i], out);
  }
  return v;
}

inline float tree_sum(V v) {
  const float32x4_t a = vaddq_f32(vaddq_f32(v.part[0], v.part[2]), vaddq_f32(v.part[1], v.part[3]));
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
inline float max_lane(V v) {
  const float32x4_t a = max(max(v.part[0], v.part[2]), max(v.part[1], v.part[3]));
  const float32x4_t b = max(a, vextq_f32(a, a, 2)), c = max(b, vextq_f32(b, b, 1));
  return vgetq_lane_f32(c, 0);
}

// p * 2^n with n = the integer that exp() left in the low bits of t; in two factors, as numeric::exp.
inline V scale_by_power(V p, V, V t) {
  const int32x4_t round = vreinterpretq_s32_f32(vdupq_n_f32(numeric::exp_constants::kRound));
  const int32x4_t bias = vdupq_n_s32(127);
  EACH_PART {
    const int32x4_t e = vsubq_s32(vreinterpretq_s32_f32(t.part[i]), round), e1 = vshrq_n_s32(e, 1);
    const int32x4_t a = vshlq_n_s32(vaddq_s32(e1, bias), 23),
                    b = vshlq_n_s32(vaddq_s32(vsubq_s32(e, e1), bias), 23);
    p.part[i] = vmulq_f32(vmulq_f32(p.part[i], vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
  }
  return p;
}

inline V load_f16(const uint16_t* p) {
  V v;
  EACH_PART v.part[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
  return v;
}
inline V load_bf16(const uint16_t* p) {
  V v;
  EACH_PART v.part[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16));
  return v;
}
// 16 int8, as floats.
inline V load_i8(const int8_t* p) {
  const int8x16_t q = vld1q_s8(p);
  const int16x8_t a = vmovl_s8(vget_low_s8(q)), b = vmovl_s8(vget_high_s8(q));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(a))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(b)))}};
}
// Rounded to the nearest even integer; every lane is within -128 .. 127.
inline void store_i8(int8_t* p, V v) {
  int16x4_t q[4];
  EACH_PART q[i] = vmovn_s32(vcvtnq_s32_f32(v.part[i]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(vcombine_s16(q[0], q[1])), vmovn_s16(vcombine_s16(q[2], q[3]))));
}
inline void store_f16(uint16_t* p, V v) {
  EACH_PART vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v.part[i])));
}
inline void store_bf16(uint16_t* p, V v) {
  EACH_PART {
    const uint32x4_t b = vreinterpretq_u32_f32(v.part[i]);
    const uint32x4_t even = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(b, vaddq_u32(even, vdupq_n_u32(0x7fff)));
    const uint32x4_t nan = vorrq_u32(b, vdupq_n_u32(0x400000));
    vst1_u16(p + 4 * i, vshrn_n_u32(vbslq_u32(vceqq_f32(v.part[i], v.part[i]), rounded, nan), 16));
  }
}

// a[2i] and a[2i + 1] of 32 floats.
inline void deinterleave(const float* p, V& even, V& odd) {
  EACH_PART {
    const float32x4x2_t pairs = vld2q_f32(p + 8 * i);
    even.part[i] = pairs.val[0];
    odd.part[i] = pairs.val[1];
  }
}
// 8 pairs (a, b) turned by 8 (cos, sin): (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)).
inline V turn_pairs(V x, V cos_sin) {
  const uint32x4_t sign = {0x80000000u, 0, 0x80000000u, 0};
  EACH_PART {
    const float32x4_t cos = vtrn1q_f32(cos_sin.part[i], cos_sin.part[i]),
                      sin = vtrn2q_f32(cos_sin.part[i], cos_sin.part[i]);
    const float32x4_t crossed = vmulq_f32(vrev64q_f32(x.part[i]), sin);
    const float32x4_t addend = vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(crossed), sign));
    x.part[i] = vfmaq_f32(addend, x.part[i], cos);
  }
  return x;
}

// 32 floats with magnitude at most absmax, which is at least 2^-100 and finite.
inline void quantise_finite(const float* x, float absmax, Q8Block& out) {
  const float inverse = 127.f / absmax;
  int32_t sums[2];
  for (int half = 0; half < 2; half++) {
    int32x4_t q[4];
    EACH_PART q[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * half + 4 * i), inverse));
    const int16x8_t a = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1])),
                    b = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    vst1q_s8(out.q + 16 * half, vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
    sums[half] = vaddlvq_s16(vaddq_s16(a, b));
  }
  const int32_t sum = sums[0] + sums[1];
  out.s = absmax / 127.f;
  out.s_sum = out.s * float(sum);
  out.minus128_sum = -128 * sum;
  out.minus128_half = -128 * sums[0];
}
// The largest magnitude among 32 floats, as bits: a NaN is above infinity.
inline uint32_t absmax_bits(const float* x) {
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
  uint32x4_t m = vdupq_n_u32(0);
  for (int i = 0; i < 32; i += 4)
    m = vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), magnitude));
  return vmaxvq_u32(m);
}

#undef EACH_PART

}  // namespace
}  // namespace gapless
