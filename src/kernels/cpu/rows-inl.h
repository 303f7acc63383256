// Bodies over one row, written on the 16 lanes of a cpu/vec_*.h, which is included first.
#pragma once

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/exp-inl.h"

namespace gapless {
namespace {

struct Silu {
  static V apply(V x) { return div(x, add(set1(1.f), exp(neg(x)))); }
};
struct GeluTanh {
  static V apply(V x) {
    const V u = mul(x, fma(set1(numeric::kGeluCubic), mul(x, x), set1(numeric::kGeluLinear)));
    return div(x, add(set1(1.f), exp(u)));
  }
};

template <class A>
void gated(const float* gate, const float* up, int32_t n, float* y) {
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, mul(A::apply(load(gate + i)), load(up + i)));
  if (i < n) store_first(y + i, mul(A::apply(load_first(gate + i, n - i)), load_first(up + i, n - i)), n - i);
}

float sum_squares(const float* x, int32_t n) {
  V acc = zero();
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) acc = fma(load(x + i), load(x + i), acc);
  if (i < n) {
    const V rest = load_first(x + i, n - i);
    acc = fma(rest, rest, acc);
  }
  return tree_sum(acc);
}

void scale(const float* x, float r, const float* weight, int32_t n, float* y) {
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, mul(mul(load(x + i), set1(r)), load(weight + i)));
  if (i < n)
    store_first(y + i, mul(mul(load_first(x + i, n - i), set1(r)), load_first(weight + i, n - i)), n - i);
}

void scale_only(const float* x, float r, int32_t n, float* y) {
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, mul(load(x + i), set1(r)));
  if (i < n) store_first(y + i, mul(load_first(x + i, n - i), set1(r)), n - i);
}

void add_row(const float* x, int32_t n, float* y) {
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, add(load(y + i), load(x + i)));
  if (i < n) store_first(y + i, add(load_first(y + i, n - i), load_first(x + i, n - i)), n - i);
}

// Contract: quantise_block of kernels/quant.h.
inline void quantise_one(const float* x, Q8Block& out) {
  const uint32_t magnitude = absmax_bits(x);
  const float absmax = numeric::from_bits(magnitude);
  if (absmax >= 0x1p-100f && magnitude < 0x7f800000) {
    quantise_finite(x, absmax, out);
  } else {
    const float s = magnitude >= 0x7f800000 ? numeric::from_bits(0x7fc00000) : 0.f;
    out = {{}, s, s, 0, 0};
  }
}

void quantise(const float* x, int32_t blocks, Q8Block* out, Q8Block* low, int64_t stride) {
  for (int32_t b = 0; b < blocks; b++) quantise_one(x + 32 * b, out[b * stride]);
  if (!low) return;
  // After all of the high ones: a block is one long chain of dependent instructions, and its low block would
  // double it.
  for (int32_t b = 0; b < blocks; b++, x += 32) {
    const Q8Block& high = out[b * stride];
    float rest[32];
    store(rest, sub(load(x), mul(set1(high.s), load_i8(high.q))));
    store(rest + 16, sub(load(x + 16), mul(set1(high.s), load_i8(high.q + 16))));
    quantise_one(rest, low[b * stride]);
  }
}

// rms_norm in place; 1 / sqrt as in kernels/ops.h.
inline void normalise(float* x, int32_t n, const float* weight, float eps) {
  scale(x, 1.f / __builtin_sqrtf(sum_squares(x, n) / float(n) + eps), weight, n, x);
}

inline void rope_interleaved(float* head, const float* cos_sin, int32_t half) {
  int32_t i = 0;
  for (; i + 16 <= 2 * half; i += 16) store(head + i, turn_pairs(load(head + i), load(cos_sin + i)));
  const int32_t rest = 2 * half - i;
  if (rest > 0)
    store_first(head + i, turn_pairs(load_first(head + i, rest), load_first(cos_sin + i, rest)), rest);
}

inline void rope_halves(float* head, const float* cos_sin, int32_t half) {
  int32_t j = 0;
  for (; j + 16 <= half; j += 16) {
    V cos, sin;
    deinterleave(cos_sin + 2 * j, cos, sin);
    const V a = load(head + j), b = load(head + half + j);
    store(head + j, fma(a, cos, neg(mul(b, sin))));
    store(head + half + j, fma(b, cos, mul(a, sin)));
  }
  for (; j < half; j++) {
    const float a = head[j], b = head[half + j], cos = cos_sin[2 * j], sin = cos_sin[2 * j + 1];
    head[j] = numeric::fma(a, cos, -(b * sin));
    head[half + j] = numeric::fma(b, cos, a * sin);
  }
}

// All heads of a row in one call through a pointer.
template <void (*rope)(float*, const float*, int32_t)>
void rope_heads(float* head, int32_t n, int32_t dim, const float* weight, float eps, const float* cos_sin,
                int32_t half) {
  for (int32_t h = 0; h < n; h++, head += dim) {
    if (weight) normalise(head, dim, weight, eps);
    rope(head, cos_sin, half);
  }
}

float to_f16(const float* x, int32_t n, std::byte* out) {
  for (int32_t i = 0; i < n; i += 16) store_f16(reinterpret_cast<uint16_t*>(out) + i, load(x + i));
  return 1;
}
float to_bf16(const float* x, int32_t n, std::byte* out) {
  for (int32_t i = 0; i < n; i += 16) store_bf16(reinterpret_cast<uint16_t*>(out) + i, load(x + i));
  return 1;
}
// Contract: quantise_row of kernels/quant.h.
float to_i8(const float* x, int32_t n, std::byte* out) {
  V largest = zero(), fault = zero();  // fault: a NaN where x has a NaN or an infinity
  for (int32_t i = 0; i < n; i += 16) {
    const V v = load(x + i);
    largest = max(max(v, neg(v)), largest);
    fault = fma(v, zero(), fault);
  }
  const float absmax = max_lane(largest), sum = tree_sum(fault);
  const bool zeros = absmax < 0x1p-100f || sum != sum;
  const V inverse = set1(zeros ? 0.f : 127.f / absmax);
  for (int32_t i = 0; i < n; i += 16)
    store_i8(reinterpret_cast<int8_t*>(out) + i, zeros ? zero() : mul(load(x + i), inverse));
  return sum != sum ? numeric::from_bits(0x7fc00000) : zeros ? 0.f : absmax / 127.f;
}

constexpr RowBodies kRows = {sum_squares,
                             scale,
                             scale_only,
                             add_row,
                             quantise,
                             {gated<Silu>, gated<GeluTanh>},
                             {rope_heads<rope_interleaved>, rope_heads<rope_halves>},
                             {to_f16, to_bf16, to_i8}};

}  // namespace
}  // namespace gapless
