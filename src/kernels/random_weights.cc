#include "kernels/random_weights.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/numeric.h"

namespace gapless {
namespace {

void fill_bytes(std::vector<std::byte>& bytes, std::mt19937& rng) {
  for (size_t at = 0; at < bytes.size(); at += 4) {
    const auto word = uint32_t(rng());
    std::memcpy(bytes.data() + at, &word, std::min<size_t>(4, bytes.size() - at));
  }
}

void put_scales(DType type, std::byte* block, float scale, float minimum) {
  const uint16_t d = numeric::f32_to_f16(scale), m = numeric::f32_to_f16(minimum);
  if (type == DType::kF32) {
    std::memcpy(block, &scale, 4);
  } else if (type == DType::kBF16) {
    const uint16_t value = numeric::f32_to_bf16(scale);
    std::memcpy(block, &value, 2);
  } else {
    std::memcpy(type == DType::kQ6_K ? block + 208 : block, &d, 2);
    if (has_minimum(packed_layout_for(type)) && type != DType::kQ4_0) std::memcpy(block + 2, &m, 2);
  }
}

}  // namespace

std::vector<std::byte> random_weights(DType type, int64_t elements, std::mt19937& rng) {
  const DTypeInfo& info = *dtype_info(uint32_t(type));
  CHECK_EQ(elements % info.block, 0);
  std::vector<std::byte> blocks(size_t(elements / info.block * info.bytes));
  fill_bytes(blocks, rng);
  std::normal_distribution<float> scale(0.f, 0.02f), minimum(0.f, 0.1f);
  for (size_t at = 0; at < blocks.size(); at += size_t(info.bytes))
    put_scales(type, blocks.data() + at, scale(rng), minimum(rng));
  return blocks;
}

}  // namespace gapless
