#include "kernels/quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "kernels/numeric.h"

namespace gapless {
namespace {

constexpr DType kQuantised[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

const DTypeInfo& info(DType type) {
  return *dtype_info(uint32_t(type));
}

std::vector<std::byte> random_bytes(size_t n, std::mt19937& rng) {
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = std::byte(rng());
  return bytes;
}

void put_f16(std::byte* p, float value) {
  const uint16_t h = numeric::f32_to_f16(value);
  std::memcpy(p, &h, 2);
}

// Random blocks with sane scales.
std::vector<std::byte> random_blocks(DType type, int64_t count, std::mt19937& rng) {
  const int64_t blocks = count / info(type).block;
  auto bytes = random_bytes(size_t(blocks * info(type).bytes), rng);
  std::uniform_real_distribution<float> scale(-0.1f, 0.1f);
  for (int64_t b = 0; b < blocks; b++) {
    std::byte* p = bytes.data() + b * info(type).bytes;
    if (type == DType::kF32) {
      const float value = scale(rng);
      std::memcpy(p, &value, 4);
    } else if (type == DType::kBF16) {
      const uint16_t value = numeric::f32_to_bf16(scale(rng));
      std::memcpy(p, &value, 2);
    } else {
      put_f16(type == DType::kQ6_K ? p + 208 : p, scale(rng));
      if (has_minimum(packed_layout_for(type)) && type != DType::kQ4_0) put_f16(p + 2, scale(rng));
    }
  }
  return bytes;
}

// Blocks of random bytes and what ggml's dequantize_row_* makes of them: {type, bytes, blocks, 512 floats}
// for each type.
TEST(Dequantise, EqualsGgml) {
  std::ifstream file(GAPLESS_TEST_DATA "/ggml_dequantise.bin", std::ios::binary);
  ASSERT_TRUE(file);
  int types = 0;
  for (uint32_t header[2]; file.read(reinterpret_cast<char*>(header), 8); types++) {
    std::vector<std::byte> blocks(header[1]);
    std::vector<float> expected(512), got(512);
    file.read(reinterpret_cast<char*>(blocks.data()), header[1]);
    file.read(reinterpret_cast<char*>(expected.data()), 512 * 4);
    ASSERT_TRUE(file);
    ASSERT_EQ(header[1], 512 / info(DType(header[0])).block * info(DType(header[0])).bytes);
    dequantise(DType(header[0]), blocks.data(), 512, got.data());
    for (int i = 0; i < 512; i++)
      ASSERT_EQ(got[i], expected[i]) << info(DType(header[0])).name << " element " << i;
  }
  EXPECT_EQ(types, 8);
}

// By hand: d = 2, m = -1, all nibbles known.
TEST(Dequantise, Q4_1ByHand) {
  std::byte block[20];
  put_f16(block, 2.f);
  put_f16(block + 2, -1.f);
  for (int i = 0; i < 16; i++) block[4 + i] = std::byte(i | (15 - i) << 4);
  float y[32];
  dequantise(DType::kQ4_1, block, 32, y);
  for (int i = 0; i < 16; i++) {
    EXPECT_EQ(y[i], 2.f * float(i) - 1.f);
    EXPECT_EQ(y[16 + i], 2.f * float(15 - i) - 1.f);
  }
}

TEST(Dequantise, FloatTypes) {
  const float values[] = {0.f, 1.f, -2.5f, 65504.f, 0x1p-24f};
  uint16_t f16[5], bf16[5];
  float y[5];
  for (int i = 0; i < 5; i++)
    f16[i] = numeric::f32_to_f16(values[i]), bf16[i] = numeric::f32_to_bf16(values[i]);
  dequantise(DType::kF32, reinterpret_cast<const std::byte*>(values), 5, y);
  for (int i = 0; i < 5; i++) EXPECT_EQ(y[i], values[i]);
  dequantise(DType::kF16, reinterpret_cast<const std::byte*>(f16), 5, y);
  for (int i = 0; i < 5; i++) EXPECT_EQ(y[i], values[i]);
  dequantise(DType::kBF16, reinterpret_cast<const std::byte*>(bf16), 5, y);
  for (int i = 0; i < 5; i++) EXPECT_NEAR(y[i], values[i], std::abs(values[i]) / 256);
}

void check_round_trip(DType type, int32_t n, int32_t k, std::mt19937& rng) {
  const auto source = random_blocks(type, int64_t(n) * k, rng);
  const int32_t extra = 16;  // a second matrix behind the first
  const auto second = random_blocks(type, int64_t(extra) * k, rng);
  PackedMatrix w{packed_layout_for(type), (n + 15) / 16 * 16 + extra, k, nullptr};
  const size_t bytes = packed_bytes(w.layout, w.n, k);
  EXPECT_EQ(packed_group_bytes(w.layout, k) % 64, 0u);
  auto data = random_bytes(bytes, rng);
  w.data = data.data();
  pack_rows(type, source.data(), n, w, 0, data.data());
  pack_rows(type, second.data(), extra, w, (n + 15) / 16 * 16, data.data());
  std::vector<float> expected(size_t(std::max(n, extra)) * size_t(k)), got(static_cast<size_t>(k));
  dequantise(type, source.data(), int64_t(n) * k, expected.data());
  for (int32_t row = 0; row < (n + 15) / 16 * 16; row++) {
    dequantise_packed_row(w, row, got.data());
    for (int32_t i = 0; i < k; i++) {
      const float e = row < n ? expected[size_t(row) * size_t(k) + size_t(i)] : 0.f;
      ASSERT_EQ(numeric::bits(got[size_t(i)]), numeric::bits(e))
          << info(type).name << " n " << n << " row " << row << " k " << i;
    }
  }
  dequantise(type, second.data(), int64_t(extra) * k, expected.data());
  dequantise_packed_row(w, w.n - 1, got.data());
  EXPECT_EQ(std::memcmp(got.data(), expected.data() + size_t(extra - 1) * size_t(k), size_t(k) * 4), 0)
      << info(type).name;
}

TEST(Pack, RowsComeBackBitForBit) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  for (DType type : kQuantised)
    for (int32_t n : {1, 16, 37})
      for (int32_t blocks : {1, 2, 5}) check_round_trip(type, n, blocks * info(type).block, rng);
  for (DType type : kFloats)
    for (int32_t n : {1, 16, 37})
      for (int32_t k : {1, 7, 64}) check_round_trip(type, n, k, rng);
}

TEST(Pack, UnknownTypesHaveNoInfo) {
  EXPECT_EQ(dtype_info(10), nullptr);  // Q2_K
  EXPECT_EQ(dtype_info(999), nullptr);
  EXPECT_STREQ(dtype_info(3)->name, "Q4_1");
}

TEST(Q8Block, FieldsAgree) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.f, 3.f);
  for (int round = 0; round < 1000; round++) {
    float x[32], absmax = 0;
    for (float& v : x) v = normal(rng), absmax = std::max(absmax, std::abs(v));
    Q8Block block;
    quantise_block(x, block);
    int sum = 0, half = 0, largest = 0;
    for (int i = 0; i < 32; i++) {
      sum += block.q[i];
      half += i < 16 ? block.q[i] : 0;
      largest = std::max(largest, std::abs(int(block.q[i])));
      EXPECT_EQ(block.q[i], int8_t(std::nearbyint(x[i] * (127.f / absmax))));
      EXPECT_NEAR(float(block.q[i]) * block.s, x[i], 0.5001f * block.s);
    }
    EXPECT_EQ(largest, 127);
    EXPECT_EQ(block.s, absmax / 127.f);
    EXPECT_EQ(block.s_sum, block.s * float(sum));
    EXPECT_EQ(block.minus128_sum, -128 * sum);
    EXPECT_EQ(block.minus128_half, -128 * half);
  }
}

TEST(Q8Block, ZeroTinyAndNotFinite) {
  Q8Block block;
  float x[32] = {};
  quantise_block(x, block);
  EXPECT_EQ(block.s, 0.f);
  EXPECT_EQ(block.q[5], 0);
  x[3] = 1e-38f;
  quantise_block(x, block);
  EXPECT_EQ(block.s, 0.f);
  EXPECT_EQ(block.q[3], 0);
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    x[7] = bad;
    quantise_block(x, block);
    EXPECT_TRUE(std::isnan(block.s));
    EXPECT_TRUE(std::isnan(block.s_sum));
    EXPECT_EQ(block.q[7], 0);
  }
}

TEST(ActivationTiles, CoverEachRowOnce) {
  for (int m = 1; m <= 70; m++) {
    const ActivationTiles tiles(m);
    const int blocks = 3;
    std::vector<int> seen(size_t(m) * blocks);
    for (int row = 0; row < m; row++) {
      const auto place = tiles.place(row, blocks);
      for (int b = 0; b < blocks; b++) seen.at(place.first + size_t(b) * place.stride)++;
    }
    for (int count : seen) ASSERT_EQ(count, 1) << "m " << m;
    for (int t = 0; t < tiles.n; t++) {
      EXPECT_GE(tiles.rows(t), 1);
      EXPECT_LE(tiles.rows(t), ActivationTiles::kMaxRows);
    }
  }
}

// ---------------------------------------------------------------- numeric.h

TEST(Numeric, ExpIsWithinTwoUlpOverTheWholeRange) {
  double worst = 0;
  uint64_t checked = 0;
  for (uint64_t b = 0; b < (uint64_t(1) << 32); b += 1009, checked++) {
    const float x = numeric::from_bits(uint32_t(b));
    const float got = numeric::exp(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(got));
      continue;
    }
    const double exact = std::exp(double(x));
    if (exact > double(std::numeric_limits<float>::max()) * (1 + 0x1p-25)) {
      ASSERT_TRUE(std::isinf(got)) << x;
      continue;
    }
    const double ulp = std::max(exact, 0x1p-126) * 0x1p-23;  // at most; half of it just below a power of two
    worst = std::max(worst, std::abs(double(got) - exact) / ulp);
  }
  EXPECT_GT(checked, 4000000u);
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(numeric::exp(0.f), 1.f);
  EXPECT_EQ(numeric::exp(-INFINITY), 0.f);
  EXPECT_TRUE(std::isinf(numeric::exp(INFINITY)));
  EXPECT_TRUE(std::isinf(numeric::exp(88.73f)));
  EXPECT_FALSE(std::isinf(numeric::exp(88.72f)));
}

TEST(Numeric, HalfConversionsRoundTripAndRoundToNearestEven) {
  for (uint32_t h = 0; h < 65536; h++) {
    const float f = numeric::f16_to_f32(uint16_t(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(numeric::f16_to_f32(numeric::f32_to_f16(f))));
      continue;
    }
    ASSERT_EQ(numeric::f32_to_f16(f), h);
    const uint32_t magnitude = h & 0x7fff;
    if (magnitude >= 0x7bff) continue;
    // Halfway to the next one goes to the even one, a little beyond goes up, a little less down.
    const float next = numeric::f16_to_f32(uint16_t(h + 1)), mid = f + (next - f) / 2;
    ASSERT_EQ(numeric::f32_to_f16(mid), h % 2 ? h + 1 : h);
    ASSERT_EQ(numeric::f32_to_f16(std::nextafter(mid, next)), h + 1);
    ASSERT_EQ(numeric::f32_to_f16(std::nextafter(mid, f)), h);
  }
  EXPECT_EQ(numeric::f32_to_f16(65519.f), 0x7bff);
  EXPECT_EQ(numeric::f32_to_f16(65520.f), 0x7c00);
  for (uint32_t h = 0; h < 65536; h++) {
    const float f = numeric::bf16_to_f32(uint16_t(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(numeric::bf16_to_f32(numeric::f32_to_bf16(f))));
    } else {
      ASSERT_EQ(numeric::f32_to_bf16(f), h);
    }
  }
  EXPECT_EQ(numeric::f32_to_bf16(numeric::from_bits(0x3f808000)), 0x3f80);
  EXPECT_EQ(numeric::f32_to_bf16(numeric::from_bits(0x3f818000)), 0x3f82);
}

TEST(Numeric, ActivationsMatchTheirFormulas) {
  for (double x = -30; x <= 30; x += 0.0137) {
    const double silu = x / (1 + std::exp(-x));
    EXPECT_NEAR(double(numeric::silu(float(x))), silu, 2e-6 * std::abs(silu) + 1e-12) << x;
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(double(numeric::gelu_tanh(float(x))), 0.5 * x * (1 + std::tanh(u)), 2e-6 * std::abs(x)) << x;
  }
  EXPECT_EQ(numeric::gelu_tanh(-50.f), 0.f);
  EXPECT_EQ(numeric::silu(200.f), 200.f);
}

}  // namespace
}  // namespace gapless
