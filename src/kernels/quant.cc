#include "kernels/quant.h"

#include <cstring>

#include "base/check.h"
#include "kernels/gguf_blocks.h"
#include "kernels/numeric.h"

namespace gapless {
namespace {

using numeric::bf16_to_f32;
using numeric::f32_to_f16;

// d * q is exact for every type (at most 11 + 6 + 6 bits of which one is the sign), so this rounds once.
void to_floats(const UnpackedBlock& block, bool minimum, float* out) {
  for (int i = 0; i < 32; i++) {
    const float product = block.d[i / 16] * float(block.q[i]);
    out[i] = minimum ? product + block.m : product;
  }
}

// ---------------------------------------------------------------- packed layouts

struct BlockPlace {
  size_t q, d, m;  // offsets in the group: quants, first scales, minimums or second scales
};

BlockPlace block_place(PackedLayout layout, int32_t b) {
  const size_t i = size_t(b);
  switch (layout) {
    case PackedLayout::kW4:
      return {i * 320, i * 320 + 256, i * 320 + 288};
    case PackedLayout::kW4F32:
      return {i * 384, i * 384 + 256, i * 384 + 320};
    case PackedLayout::kW8:
      return {i / 2 * 1088 + i % 2 * 512, i / 2 * 1088 + 1024 + i % 2 * 32, 0};
    case PackedLayout::kW8Min:
      return {i * 576, i * 576 + 512, i * 576 + 544};
    case PackedLayout::kW8MinF32:
    case PackedLayout::kW8Group16F32:
      return {i * 640, i * 640 + 512, i * 640 + 576};
    default:
      CHECK(false, "layout {} has no blocks", int(layout));
  }
}

bool has_nibbles(PackedLayout layout) {
  return layout == PackedLayout::kW4 || layout == PackedLayout::kW4F32;
}
bool has_f32_scales(PackedLayout layout) {
  return layout == PackedLayout::kW4F32 || layout == PackedLayout::kW8MinF32 ||
         layout == PackedLayout::kW8Group16F32;
}

void store_scale(std::byte* scales, int lane, bool f32, float value) {
  if (f32) {
    std::memcpy(scales + 4 * lane, &value, 4);
  } else {
    const uint16_t half = f32_to_f16(value);
    std::memcpy(scales + 2 * lane, &half, 2);
  }
}
float load_scale(const std::byte* scales, int lane, bool f32) {
  return f32 ? load<float>(scales + 4 * lane) : load_f16(scales + 2 * lane);
}

void write_packed_block(PackedLayout layout, std::byte* group, int lane, int32_t b, const UnpackedBlock& in) {
  const BlockPlace place = block_place(layout, b);
  if (has_nibbles(layout)) {
    uint8_t nibbles[16];
    for (int i = 0; i < 16; i++) nibbles[i] = uint8_t(in.q[i] | in.q[16 + i] << 4);
    for (int j = 0; j < 4; j++) std::memcpy(group + place.q + 64 * j + 4 * lane, nibbles + 4 * j, 4);
  } else {
    uint8_t bytes[32];
    for (int i = 0; i < 32; i++) bytes[i] = uint8_t(uint8_t(in.q[i]) ^ 0x80);
    for (int j = 0; j < 8; j++) std::memcpy(group + place.q + 64 * j + 4 * lane, bytes + 4 * j, 4);
  }
  const bool f32 = has_f32_scales(layout);
  store_scale(group + place.d, lane, f32, in.d[0]);
  if (has_minimum(layout)) store_scale(group + place.m, lane, f32, in.m);
  if (layout == PackedLayout::kW8Group16F32) store_scale(group + place.m, lane, f32, in.d[1]);
}

void pack_quantised_row(DType type, const std::byte* row, PackedLayout layout, int32_t blocks,
                        std::byte* group, int lane) {
  UnpackedBlock block{};
  for (int32_t b = 0; b < blocks; b++) {
    if (row) unpack_gguf(type, row, b, block);
    write_packed_block(layout, group, lane, b, block);
  }
}

void pack_float_row(const std::byte* row, size_t element, int32_t k, std::byte* group, int lane) {
  for (int32_t i = 0; i < k; i++) {
    std::byte* to = group + (size_t(i) * 16 + size_t(lane)) * element;
    if (row) {
      std::memcpy(to, row + size_t(i) * element, element);
    } else {
      std::memset(to, 0, element);
    }
  }
}

size_t float_bytes(PackedLayout layout) {
  return layout == PackedLayout::kF32 ? 4 : 2;
}

}  // namespace

ActivationTiles::Place ActivationTiles::place(int row, int blocks) const {
  int t = int(int64_t(row) * n / m);
  while (first(t + 1) <= row) t++;
  return {size_t(first(t)) * size_t(blocks) + size_t(row - first(t)), size_t(rows(t))};
}

const DTypeInfo* dtype_info(uint32_t gguf_type) {
  static constexpr struct {
    DType type;
    DTypeInfo info;
  } kTypes[] = {{DType::kF32, {"F32", 1, 4}},       {DType::kF16, {"F16", 1, 2}},
                {DType::kBF16, {"BF16", 1, 2}},     {DType::kQ8_0, {"Q8_0", 32, 34}},
                {DType::kQ4_0, {"Q4_0", 32, 18}},   {DType::kQ4_1, {"Q4_1", 32, 20}},
                {DType::kQ5_0, {"Q5_0", 32, 22}},   {DType::kQ5_1, {"Q5_1", 32, 24}},
                {DType::kQ4_K, {"Q4_K", 256, 144}}, {DType::kQ5_K, {"Q5_K", 256, 176}},
                {DType::kQ6_K, {"Q6_K", 256, 210}}};
  for (const auto& row : kTypes)
    if (uint32_t(row.type) == gguf_type) return &row.info;
  return nullptr;
}

PackedLayout packed_layout_for(DType type) {
  switch (type) {
    case DType::kF32:
      return PackedLayout::kF32;
    case DType::kF16:
      return PackedLayout::kF16;
    case DType::kBF16:
      return PackedLayout::kBF16;
    case DType::kQ4_0:
    case DType::kQ4_1:
      return PackedLayout::kW4;
    case DType::kQ4_K:
      return PackedLayout::kW4F32;
    case DType::kQ8_0:
    case DType::kQ5_0:
      return PackedLayout::kW8;
    case DType::kQ5_1:
      return PackedLayout::kW8Min;
    case DType::kQ5_K:
      return PackedLayout::kW8MinF32;
    case DType::kQ6_K:
      return PackedLayout::kW8Group16F32;
  }
  CHECK(false, "unknown tensor type {}", uint32_t(type));
}

bool has_minimum(PackedLayout layout) {
  return has_nibbles(layout) || layout == PackedLayout::kW8Min || layout == PackedLayout::kW8MinF32;
}

size_t packed_group_bytes(PackedLayout layout, int32_t k) {
  const size_t inputs = size_t(k), blocks = inputs / 32;
  switch (layout) {
    case PackedLayout::kF32:
      return inputs * 64;
    case PackedLayout::kF16:
    case PackedLayout::kBF16:
      return (inputs * 32 + 63) / 64 * 64;
    case PackedLayout::kW4:
      return blocks * 320;
    case PackedLayout::kW4F32:
      return blocks * 384;
    case PackedLayout::kW8:
      return (blocks + 1) / 2 * 1088;
    case PackedLayout::kW8Min:
      return blocks * 576;
    case PackedLayout::kW8MinF32:
    case PackedLayout::kW8Group16F32:
      return blocks * 640;
  }
  CHECK(false, "unknown layout {}", int(layout));
}

size_t packed_bytes(PackedLayout layout, int32_t n, int32_t k) {
  return (size_t(n) + 15) / 16 * packed_group_bytes(layout, k);
}

void pack_rows(DType type, const std::byte* source, int32_t rows, PackedMatrix packed, int32_t row_begin,
               std::byte* data) {
  CHECK(row_begin % 16 == 0 && row_begin + rows <= packed.padded_n(), "rows {} + {} of {}", row_begin, rows,
        packed.n);
  CHECK(packed.layout == packed_layout_for(type), "layout {} for type {}", int(packed.layout),
        uint32_t(type));
  CHECK(!packed.quantised() || packed.k % 32 == 0, "k = {}", packed.k);
  const DTypeInfo& info = *dtype_info(uint32_t(type));
  CHECK_EQ(packed.k % info.block, 0);
  const size_t group_bytes = packed_group_bytes(packed.layout, packed.k);
  const size_t row_bytes = size_t(packed.k / info.block) * size_t(info.bytes);
  for (int32_t r = 0; r < (rows + 15) / 16 * 16; r++) {
    std::byte* group = data + size_t(row_begin + r) / 16 * group_bytes;
    const std::byte* row = r < rows ? source + size_t(r) * row_bytes : nullptr;
    if (packed.quantised()) {
      pack_quantised_row(type, row, packed.layout, packed.k / 32, group, r % 16);
    } else {
      pack_float_row(row, float_bytes(packed.layout), packed.k, group, r % 16);
    }
  }
}

void dequantise(DType type, const std::byte* source, int64_t count, float* out) {
  if (type == DType::kF32) {
    std::memcpy(out, source, size_t(count) * 4);
  } else if (type == DType::kF16) {
    for (int64_t i = 0; i < count; i++) out[i] = load_f16(source + 2 * i);
  } else if (type == DType::kBF16) {
    for (int64_t i = 0; i < count; i++) out[i] = bf16_to_f32(load<uint16_t>(source + 2 * i));
  } else {
    CHECK_EQ(count % dtype_info(uint32_t(type))->block, 0);
    UnpackedBlock block;
    const bool minimum = has_minimum(packed_layout_for(type));
    for (int64_t b = 0; b < count / 32; b++) {
      unpack_gguf(type, source, b, block);
      to_floats(block, minimum, out + 32 * b);
    }
  }
}

void read_packed_block(const PackedMatrix& w, int32_t row, int32_t b, UnpackedBlock& out) {
  const std::byte* group = w.data + size_t(row / 16) * packed_group_bytes(w.layout, w.k);
  const int lane = row % 16;
  const BlockPlace place = block_place(w.layout, b);
  if (has_nibbles(w.layout)) {
    std::byte nibbles[16];
    for (int j = 0; j < 4; j++) std::memcpy(nibbles + 4 * j, group + place.q + 64 * j + 4 * lane, 4);
    unpack_nibbles(nibbles, out.q);
  } else {
    for (int j = 0; j < 8; j++) std::memcpy(out.q + 4 * j, group + place.q + 64 * j + 4 * lane, 4);
    for (int8_t& q : out.q) q = int8_t(uint8_t(q) ^ 0x80);
  }
  const bool f32 = has_f32_scales(w.layout);
  out.d[0] = out.d[1] = load_scale(group + place.d, lane, f32);
  out.m = has_minimum(w.layout) ? load_scale(group + place.m, lane, f32) : 0.f;
  if (w.layout == PackedLayout::kW8Group16F32) out.d[1] = load_scale(group + place.m, lane, f32);
}

void dequantise_packed_row(const PackedMatrix& w, int32_t row, float* out) {
  if (w.quantised()) {
    UnpackedBlock block;
    for (int32_t b = 0; b < w.k / 32; b++) {
      read_packed_block(w, row, b, block);
      to_floats(block, has_minimum(w.layout), out + 32 * b);
    }
    return;
  }
  const size_t element = float_bytes(w.layout);
  const std::byte* column =
      w.data + size_t(row / 16) * packed_group_bytes(w.layout, w.k) + size_t(row % 16) * element;
  for (int32_t i = 0; i < w.k; i++) {
    const std::byte* p = column + size_t(i) * 16 * element;
    out[i] = w.layout == PackedLayout::kF32   ? load<float>(p)
             : w.layout == PackedLayout::kF16 ? load_f16(p)
                                              : bf16_to_f32(load<uint16_t>(p));
  }
}

float quantise_row(const float* x, int32_t n, int8_t* q) {
  uint32_t magnitude = 0;  // integer order is float order for magnitudes, and a NaN is above infinity
  for (int32_t i = 0; i < n; i++) {
    const uint32_t m = numeric::bits(x[i]) & 0x7fffffff;
    magnitude = m > magnitude ? m : magnitude;
    q[i] = 0;
  }
  const float absmax = numeric::from_bits(magnitude);
  if (magnitude >= 0x7f800000) return numeric::from_bits(0x7fc00000);
  if (absmax < 0x1p-100f) return 0;
  const float inverse = 127.f / absmax;
  for (int32_t i = 0; i < n; i++) q[i] = int8_t(numeric::round_even(x[i] * inverse));
  return absmax / 127.f;
}

void quantise_block(const float* x, Q8Block& out) {
  out = Q8Block{};
  out.s = quantise_row(x, 32, out.q);
  int32_t sum = 0;
  for (int i = 0; i < 32; i++) {
    sum += out.q[i];
    if (i == 15) out.minus128_half = -128 * sum;
  }
  out.s_sum = out.s * float(sum);
  out.minus128_sum = -128 * sum;
}

}  // namespace gapless
