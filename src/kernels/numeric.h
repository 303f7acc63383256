// The scalar side of every kernel's arithmetic: what a vector lane computes, written once. Reference loops
// call these; vector bodies repeat the same operations in the same order, so both give the same bits.
//
// Everything is `static inline` and built on compiler builtins: some including files are compiled for wider
// instruction sets, and no function with external linkage may be emitted there (the linker could pick it for
// everybody).
#pragma once

#include <cstdint>

namespace gapless::numeric {

static inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
static inline uint32_t bits(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
static inline float from_bits(uint32_t x) {
  return __builtin_bit_cast(float, x);
}

// Same as the x86 instructions: the second operand if either is a NaN or both are zeros.
static inline float max(float a, float b) {
  return a > b ? a : b;
}
static inline float min(float a, float b) {
  return a < b ? a : b;
}

// Sums 16 lanes: l += l + 8, then + 4, + 2, + 1. Destroys the input.
static inline float tree_sum(float (&lanes)[16]) {
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

// sum of a[i] * b[i]: lane l takes elements l, l + 16, ... with fma, then the tree.
static inline float dot(const float* a, const float* b, int64_t n) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; i++) lanes[i % 16] = fma(a[i], b[i], lanes[i % 16]);
  return tree_sum(lanes);
}

// e^x = 2^n * e^r with |r| <= ln(2) / 2 and a polynomial (Cephes' expf coefficients) evaluated with fma.
// Within 1 ulp wherever the result is normal; 0 below -104, inf above 89, NaN for NaN, exp(0) = 1.
namespace exp_constants {
inline constexpr float kLow = -104.f, kHigh = 89.f;
inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kRound =
    12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kP0 = 1.9875691500e-4f, kP1 = 1.3981999507e-3f, kP2 = 8.3334519073e-3f,
                       kP3 = 4.1665795894e-2f, kP4 = 1.6666665459e-1f, kP5 = 5.0000001201e-1f;
}  // namespace exp_constants

static inline float exp(float x) {
  using namespace exp_constants;
  x = max(kLow, x);
  x = min(kHigh, x);
  const float t = fma(x, kLog2e, kRound);
  const float n = t - kRound;
  float r = fma(n, -kLn2High, x);
  r = fma(n, -kLn2Low, r);
  float p = fma(kP0, r, kP1);
  p = fma(p, r, kP2);
  p = fma(p, r, kP3);
  p = fma(p, r, kP4);
  p = fma(p, r, kP5);
  p = fma(p, r * r, r) + 1.f;
  // Two factors, so that 2^n may be beyond the largest float or a subnormal; only the last product rounds, as
  // in vscalefps.
  const int32_t e = int32_t(bits(t) - bits(kRound));
  const int32_t e1 = e >> 1, e2 = int32_t(uint32_t(e) - uint32_t(e1));
  return p * from_bits(uint32_t(e1 + 127) << 23) * from_bits(uint32_t(e2 + 127) << 23);
}

static inline float silu(float x) {
  return x / (1.f + exp(-x));
}

// 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + e^(-2u)).
inline constexpr float kGeluLinear = -1.5957691216057308f;  // -2 sqrt(2 / pi)
inline constexpr float kGeluCubic = -0.07135481282553516f;  // -2 sqrt(2 / pi) * 0.044715
static inline float gelu_tanh(float x) {
  const float u = x * fma(kGeluCubic, x * x, kGeluLinear);
  return x / (1.f + exp(u));
}

static inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  if (exponent == 0) {
    const float value = float(mantissa) * 0x1p-24f;
    return from_bits(sign | bits(value));
  }
  return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Round to nearest even; beyond 65504 becomes infinity.
static inline uint16_t f32_to_f16(float x) {
  const uint32_t b = bits(x), sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: the addition aligns and rounds
    const float shifted = from_bits(magnitude) + 0.5f;
    return uint16_t(sign | (bits(shifted) - bits(0.5f)));
  }
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

static inline float bf16_to_f32(uint16_t h) {
  return from_bits(uint32_t(h) << 16);
}

static inline uint16_t f32_to_bf16(float x) {
  const uint32_t b = bits(x);
  if ((b & 0x7fffffff) > 0x7f800000) return uint16_t(b >> 16 | 0x40);
  return uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

// Nearest integer, ties to even, for |x| < 2^22.
static inline int32_t round_even(float x) {
  return int32_t(bits(x + exp_constants::kRound) - bits(exp_constants::kRound));
}

}  // namespace gapless::numeric
