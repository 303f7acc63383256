#include "model/testing/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/numeric.h"

namespace gapless::testing {
namespace {

using numeric::f32_to_bf16;
using numeric::f32_to_f16;

int level(float x, float step, int low, int high) {
  return step == 0 ? std::clamp(0, low, high) : std::clamp(int(std::lround(x / step)), low, high);
}

float absmax(const float* x, int n) {
  float most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

// Appends the 16-bit `value` at p.
std::byte* put16(std::byte* p, uint16_t value) {
  std::memcpy(p, &value, 2);
  return p + 2;
}

// Element i of a block of 32 is in the low half of byte i, element 16 + i in the high half.
void put_nibbles(std::byte* p, const int* q) {
  for (int i = 0; i < 16; ++i) p[i] = std::byte((q[i] & 15) | (q[i + 16] & 15) << 4);
}

void put_fifth_bits(std::byte* p, const int* q) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= uint32_t(q[i] >> 4 & 1) << i;
  std::memcpy(p, &high, 4);
}

// Levels 0 .. 2^bits - 1 around a middle: x is about d * (q - 2^(bits - 1)).
void symmetric_block(const float* x, int bits, std::byte* out) {
  const int middle = 1 << (bits - 1);
  const float d = absmax(x, 32) / float(middle - 1);
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = level(x[i], d, -middle, middle - 1) + middle;
  out = put16(out, f32_to_f16(d));
  if (bits == 5) {
    put_fifth_bits(out, q);
    out += 4;
  }
  put_nibbles(out, q);
}

// Levels above a minimum: x is about d * q + m.
void minimum_block(const float* x, int bits, std::byte* out) {
  const float low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
  const float d = (high - low) / float((1 << bits) - 1);
  int q[32];
  for (int i = 0; i < 32; ++i) q[i] = level(x[i] - low, d, 0, (1 << bits) - 1);
  out = put16(put16(out, f32_to_f16(d)), f32_to_f16(low));
  if (bits == 5) {
    put_fifth_bits(out, q);
    out += 4;
  }
  put_nibbles(out, q);
}

void q8_0_block(const float* x, std::byte* out) {
  const float d = absmax(x, 32) / 127;
  out = put16(out, f32_to_f16(d));
  for (int i = 0; i < 32; ++i) out[i] = std::byte(int8_t(level(x[i], d, -127, 127)));
}

// 6-bit scales and minima of 8 sub-blocks in 12 bytes: the first four whole, the high bits of the others
// above them.
void put_scales(std::byte* p, const int* scale, const int* min) {
  for (int j = 0; j < 4; ++j) {
    p[j] = std::byte(scale[j] | (scale[j + 4] >> 4) << 6);
    p[j + 4] = std::byte(min[j] | (min[j + 4] >> 4) << 6);
    p[j + 8] = std::byte((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
  }
}

// Q4_K and Q5_K: 256 elements, x is about d * scale[j] * q - dmin * min[j] in sub-block j of 32.
void k_block(const float* x, int bits, std::byte* out) {
  const int top = (1 << bits) - 1;
  float steps[8], minima[8];
  for (int j = 0; j < 8; ++j) {
    const float low = std::min(0.0f, *std::min_element(x + 32 * j, x + 32 * j + 32));
    minima[j] = -low;
    steps[j] = (*std::max_element(x + 32 * j, x + 32 * j + 32) - low) / float(top);
  }
  const float d = absmax(steps, 8) / 63, dmin = absmax(minima, 8) / 63;
  int scale[8], min[8], q[256];
  for (int j = 0; j < 8; ++j) {
    scale[j] = level(steps[j], d, 0, 63);
    min[j] = level(minima[j], dmin, 0, 63);
    for (int i = 32 * j; i < 32 * j + 32; ++i)
      q[i] = level(x[i] + dmin * float(min[j]), d * float(scale[j]), 0, top);
  }
  out = put16(put16(out, f32_to_f16(d)), f32_to_f16(dmin));
  put_scales(out, scale, min);
  out += 12;
  if (bits == 5) {
    std::fill_n(out, 32, std::byte{0});
    for (int i = 0; i < 256; ++i) out[i % 32] |= std::byte((q[i] >> 4 & 1) << (i / 32));
    out += 32;
  }
  for (int i = 0; i < 128; ++i) {
    const int low = i / 32 * 64 + i % 32;
    out[i] = std::byte((q[low] & 15) | (q[low + 32] & 15) << 4);
  }
}

// Q6_K: 256 elements, x is about d * scale[j] * (q - 32) in sub-block j of 16.
void q6_k_block(const float* x, std::byte* out) {
  float steps[16];
  for (int j = 0; j < 16; ++j) steps[j] = absmax(x + 16 * j, 16) / 31;
  const float d = absmax(steps, 16) / 127;
  int q[256];
  std::byte *low = out, *high = out + 128, *scales = out + 192;
  for (int j = 0; j < 16; ++j) {
    const int scale = level(steps[j], d, 0, 127);
    scales[j] = std::byte(scale);
    for (int i = 16 * j; i < 16 * j + 16; ++i) q[i] = level(x[i], d * float(scale), -32, 31) + 32;
  }
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 32; ++l) {
      const int* p = q + 128 * half + l;
      low[64 * half + l] = std::byte((p[0] & 15) | (p[64] & 15) << 4);
      low[64 * half + 32 + l] = std::byte((p[32] & 15) | (p[96] & 15) << 4);
      high[32 * half + l] = std::byte(p[0] >> 4 | (p[32] >> 4) << 2 | (p[64] >> 4) << 4 | (p[96] >> 4) << 6);
    }
  }
  put16(out + 208, f32_to_f16(d));
}

void quantise_one(DType type, const float* x, std::byte* out) {
  switch (type) {
    case DType::kF32:
      std::memcpy(out, x, 4);
      return;
    case DType::kF16:
      put16(out, f32_to_f16(*x));
      return;
    case DType::kBF16:
      put16(out, f32_to_bf16(*x));
      return;
    case DType::kQ4_0:
      symmetric_block(x, 4, out);
      return;
    case DType::kQ5_0:
      symmetric_block(x, 5, out);
      return;
    case DType::kQ4_1:
      minimum_block(x, 4, out);
      return;
    case DType::kQ5_1:
      minimum_block(x, 5, out);
      return;
    case DType::kQ8_0:
      q8_0_block(x, out);
      return;
    case DType::kQ4_K:
      k_block(x, 4, out);
      return;
    case DType::kQ5_K:
      k_block(x, 5, out);
      return;
    case DType::kQ6_K:
      q6_k_block(x, out);
      return;
  }
}

}  // namespace

Bytes quantise(DType type, std::span<const float> x) {
  const DTypeInfo* info = dtype_info(uint32_t(type));
  CHECK(info, "type {}", uint32_t(type));
  CHECK_EQ(x.size() % size_t(info->block), 0u);
  const size_t blocks = x.size() / size_t(info->block);
  Bytes out(blocks * size_t(info->bytes));
  for (size_t b = 0; b < blocks; ++b) {
    quantise_one(type, x.data() + b * size_t(info->block), out.data() + b * size_t(info->bytes));
  }
  return out;
}

}  // namespace gapless::testing
