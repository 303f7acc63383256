#include "kernels/gguf_blocks.h"

#include "base/check.h"

namespace gapless {
namespace {

uint8_t byte_at(const std::byte* p, int i) {
  return std::to_integer<uint8_t>(p[i]);
}

}  // namespace

void unpack_nibbles(const std::byte* p, int8_t* q) {
  for (int i = 0; i < 16; i++) {
    q[i] = int8_t(byte_at(p, i) & 15);
    q[16 + i] = int8_t(byte_at(p, i) >> 4);
  }
}

namespace {

// Adds the fifth bit of Q5_0 and Q5_1: bit i of a 32-bit word.
void add_fifth_bits(uint32_t high, int8_t* q) {
  for (int i = 0; i < 32; i++) q[i] = int8_t(q[i] | (high >> i & 1) << 4);
}

void unpack_q4_0(const std::byte* p, UnpackedBlock& out) {
  out.d[0] = out.d[1] = load_f16(p);
  out.m = -8.f * out.d[0];
  unpack_nibbles(p + 2, out.q);
}

void unpack_q4_1(const std::byte* p, UnpackedBlock& out) {
  out.d[0] = out.d[1] = load_f16(p);
  out.m = load_f16(p + 2);
  unpack_nibbles(p + 4, out.q);
}

void unpack_q5_0(const std::byte* p, UnpackedBlock& out) {
  out.d[0] = out.d[1] = load_f16(p);
  out.m = 0;
  unpack_nibbles(p + 6, out.q);
  add_fifth_bits(load<uint32_t>(p + 2), out.q);
  for (int8_t& q : out.q) q = int8_t(q - 16);
}

void unpack_q5_1(const std::byte* p, UnpackedBlock& out) {
  out.d[0] = out.d[1] = load_f16(p);
  out.m = load_f16(p + 2);
  unpack_nibbles(p + 8, out.q);
  add_fifth_bits(load<uint32_t>(p + 4), out.q);
}

void unpack_q8_0(const std::byte* p, UnpackedBlock& out) {
  out.d[0] = out.d[1] = load_f16(p);
  out.m = 0;
  std::memcpy(out.q, p + 2, 32);
}

// The 6-bit scale and minimum of sub-block j (0..7) of Q4_K and Q5_K, packed into 12 bytes.
void k_scale_min(const std::byte* scales, int j, float& scale, float& min) {
  if (j < 4) {
    scale = float(byte_at(scales, j) & 63);
    min = float(byte_at(scales, j + 4) & 63);
  } else {
    scale = float((byte_at(scales, j + 4) & 15) | byte_at(scales, j - 4) >> 6 << 4);
    min = float(byte_at(scales, j + 4) >> 4 | byte_at(scales, j) >> 6 << 4);
  }
}

// d (f16), dmin (f16), scales[12]; both products are exact in float32 (11 + 6 bits).
void unpack_k_scales(const std::byte* p, int sub, UnpackedBlock& out) {
  float scale, min;
  k_scale_min(p + 4, sub, scale, min);
  out.d[0] = out.d[1] = load_f16(p) * scale;
  out.m = -(load_f16(p + 2) * min);
}

// 32 nibbles of sub-block `sub`: two sub-blocks share 32 bytes, the even one has the low nibbles.
void unpack_k_nibbles(const std::byte* p, int sub, int8_t* q) {
  for (int i = 0; i < 32; i++) q[i] = int8_t(byte_at(p, 32 * (sub / 2) + i) >> 4 * (sub % 2) & 15);
}

void unpack_q4_k(const std::byte* p, int sub, UnpackedBlock& out) {
  unpack_k_scales(p, sub, out);
  unpack_k_nibbles(p + 16, sub, out.q);
}

void unpack_q5_k(const std::byte* p, int sub, UnpackedBlock& out) {
  unpack_k_scales(p, sub, out);
  unpack_k_nibbles(p + 48, sub, out.q);
  for (int i = 0; i < 32; i++) out.q[i] = int8_t(out.q[i] | (byte_at(p + 16, i) >> sub & 1) << 4);
}

// ql[128], qh[64], scales[16] (int8), d (f16). Each half of 128 elements has 4 sub-blocks that share 64 bytes
// of ql and 32 of qh.
void unpack_q6_k(const std::byte* p, int sub, UnpackedBlock& out) {
  const int half = sub / 4, part = sub % 4;
  const std::byte* low = p + 64 * half + 32 * (part % 2);
  const std::byte* high = p + 128 + 32 * half;
  for (int i = 0; i < 32; i++) {
    const int nibble = byte_at(low, i) >> 4 * (part / 2) & 15, top = byte_at(high, i) >> 2 * part & 3;
    out.q[i] = int8_t((nibble | top << 4) - 32);
  }
  const float d = load_f16(p + 208);
  for (int i = 0; i < 2; i++) out.d[i] = d * float(load<int8_t>(p + 192 + 2 * sub + i));
  out.m = 0;
}

}  // namespace

void unpack_gguf(DType type, const std::byte* row, int64_t b, UnpackedBlock& out) {
  const int bytes = dtype_info(uint32_t(type))->bytes;
  switch (type) {
    case DType::kQ4_0:
      return unpack_q4_0(row + b * bytes, out);
    case DType::kQ4_1:
      return unpack_q4_1(row + b * bytes, out);
    case DType::kQ5_0:
      return unpack_q5_0(row + b * bytes, out);
    case DType::kQ5_1:
      return unpack_q5_1(row + b * bytes, out);
    case DType::kQ8_0:
      return unpack_q8_0(row + b * bytes, out);
    case DType::kQ4_K:
      return unpack_q4_k(row + b / 8 * bytes, int(b % 8), out);
    case DType::kQ5_K:
      return unpack_q5_k(row + b / 8 * bytes, int(b % 8), out);
    case DType::kQ6_K:
      return unpack_q6_k(row + b / 8 * bytes, int(b % 8), out);
    default:
      CHECK(false, "type {} has no blocks", uint32_t(type));
  }
}

}  // namespace gapless
