#include <cmath>

#include "kernels/random_weights.h"
#include "kernels/testing/op_runner.h"

namespace gapless::testing {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                            DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

const DTypeInfo& info(DType type) {
  return *dtype_info(uint32_t(type));
}

struct Weights {
  PackedMatrix w;
  Exact<std::byte> data;
  std::vector<float> dense;  // [n][k]

  Weights(DType type, int32_t n, int32_t k, Random& random)
      : w{packed_layout_for(type), n, k, nullptr},
        data(packed_bytes(w.layout, n, k)),
        dense(size_t(n) * size_t(k)) {
    const auto blocks = random_weights(type, int64_t(dense.size()), random.rng());
    dequantise(type, blocks.data(), int64_t(dense.size()), dense.data());
    pack_rows(type, blocks.data(), n, w, 0, data.data());
    w.data = data.data();
  }
};

struct Activations {
  int32_t m, k, low_begin = -1;  // -1: without what int8 rounds away
  Exact<float> f32;
  Exact<Q8Block> q8, q8_low;
  Activations(int32_t m, int32_t k, Random& random)
      : m(m), k(k), f32(size_t(m) * size_t(k)), q8(size_t(m) * size_t(k / 32)), q8_low(q8.size()) {
    random.fill_normal(f32);
    quantise();
  }
  Activations(const Activations& all, int32_t row)
      : m(1), k(all.k), low_begin(all.low_begin), f32(size_t(k)), q8(size_t(k / 32)), q8_low(q8.size()) {
    std::memcpy(f32.data(), all.f32.data() + size_t(row) * size_t(k), size_t(k) * 4);
    quantise();
  }
  void quantise() {
    const ActivationTiles tiles(m);
    for (int32_t row = 0; row < m; row++) {
      const auto place = tiles.place(row, k / 32);
      for (int32_t b = 0; b < k / 32; b++) {
        const float* x = f32.data() + size_t(row) * size_t(k) + size_t(b) * 32;
        Q8Block& block = q8[place.first + size_t(b) * place.stride];
        quantise_block(x, block);
        float rest[32];
        for (int32_t i = 0; i < 32; i++) rest[i] = x[i] - block.s * float(block.q[i]);
        quantise_block(rest, q8_low[place.first + size_t(b) * place.stride]);
      }
    }
  }
};

// Y, starting from `before`, which has guard rows above and below that must not change.
Exact<float> multiply(Isa isa, const Weights& weights, const Activations& x, const Exact<float>& before,
                      int64_t ldy, bool add, Order order = Order::kForward) {
  Exact<float> y = before;
  const int32_t begin = 3, count = begin + x.m;  // the rows that are there, out of a larger capacity
  OpList ops;
  op_table(isa)->matmul(ops, {.rows = {&count, begin, x.m + 5},
                              .x_f32 = x.f32.data(),
                              .ldx = x.k,
                              .x_q8 = x.q8.data(),
                              .w = weights.w,
                              .y = y.data() + ldy,
                              .ldy = ldy,
                              .add = add,
                              .x_q8_low = x.low_begin >= 0 ? x.q8_low.data() : nullptr,
                              .low_begin = x.low_begin});
  OpRunner().run(ops, order);
  return y;
}

Exact<float> output_for(const Weights& weights, int32_t m, int64_t ldy, Random& random) {
  Exact<float> y(size_t(m + 2) * size_t(ldy));
  random.fill_normal(y);
  EXPECT_GE(ldy, weights.w.padded_n());
  return y;
}

// The contract itself against plain arithmetic in double.
TEST(Matmul, ReferenceIsTheProduct) {
  Random random;
  for (DType type : kTypes) {
    const int32_t n = 19, k = 256, m = 3;
    Weights weights(type, n, k, random);
    Activations x(m, k, random);
    x.low_begin = 16;
    const auto before = output_for(weights, m, 32, random);
    const auto y = multiply(Isa::kReference, weights, x, before, 32, true);
    for (int32_t row = 0; row < m; row++)
      for (int32_t column = 0; column < n; column++) {
        double sum = 0, magnitude = 0;
        for (int32_t i = 0; i < k; i++) {
          const double product =
              double(weights.dense[size_t(column * k + i)]) * double(x.f32[size_t(row * k + i)]);
          sum += product;
          magnitude += std::abs(double(weights.dense[size_t(column * k + i)]));
        }
        const size_t at = size_t((row + 1) * 32 + column);
        // int8 activations: each is off by at most half a step of absmax / 127, and absmax is below 6 here.
        // With what that rounds away added as int8 again, 254 times less.
        const double int8 = 0.5 * 6 / 127 * magnitude / 3, exact = 1e-5 * magnitude + 1e-6;
        const double tolerance = !weights.w.quantised() ? exact : column >= 16 ? int8 / 254 + exact : int8;
        ASSERT_NEAR(double(y[at]), double(before[at]) + sum, tolerance)
            << info(type).name << " " << row << "," << column;
      }
  }
}

void expect_equals_reference(DType type, int32_t n, int32_t k, int32_t m, Random& random) {
  Weights weights(type, n, k, random);
  Activations x(m, k, random);
  if (random.coin()) x.low_begin = 16 * random.below(weights.w.groups() + 1);
  const int64_t ldy = weights.w.padded_n() + random.below(3) * 16;
  const bool add = random.coin();
  const auto before = output_for(weights, m, ldy, random);
  const auto expected = multiply(Isa::kReference, weights, x, before, ldy, add);
  for (Isa isa : fast_isas())
    for (Order order : kOrders)
      ASSERT_TRUE(multiply(isa, weights, x, before, ldy, add, order) == expected)
          << isa_name(isa) << " " << info(type).name << " n " << n << " k " << k << " m " << m << " add "
          << add;
}

TEST(Matmul, EveryTableGivesTheSameBits) {
  Random random;
  for (DType type : kTypes) {
    const int32_t step = info(type).block == 256 ? 256 : 32;
    for (int32_t m = 1; m <= 17; m++)
      expect_equals_reference(type, random.between(1, 40), step * random.between(1, 3), m, random);
    for (int round = 0; round < 4; round++)
      expect_equals_reference(type, random.between(1, 150), step * random.between(1, 5),
                              random.between(18, 64), random);
  }
  // A float matrix may have any number of inputs.
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16})
    expect_equals_reference(type, 20, 37, 5, random);
}

TEST(Matmul, ManyChunksGiveTheSameBits) {
  Random random;
  expect_equals_reference(DType::kQ4_1, 16 * 300, 64, 2, random);
  expect_equals_reference(DType::kQ8_0, 16 * 150, 576, 9, random);
}

TEST(Matmul, ARowAloneIsTheRowInABatch) {
  Random random;
  std::vector<Isa> isas = fast_isas();
  isas.push_back(Isa::kReference);
  for (Isa isa : isas)
    for (DType type : kTypes) {
      const int32_t m = random.between(2, 40), n = random.between(1, 50);
      Weights weights(type, n, 256, random);
      Activations x(m, 256, random);
      if (random.coin()) x.low_begin = 0;
      const int64_t ldy = weights.w.padded_n();
      const auto all = multiply(isa, weights, x, output_for(weights, m, ldy, random), ldy, false);
      for (int32_t row = 0; row < m; row++) {
        const Activations alone(x, row);
        const auto y = multiply(isa, weights, alone, output_for(weights, 1, ldy, random), ldy, false);
        ASSERT_EQ(std::memcmp(y.data() + ldy, all.data() + (row + 1) * ldy, size_t(ldy) * 4), 0)
            << isa_name(isa) << " " << info(type).name << " row " << row << " of " << m;
      }
    }
}

// The largest products that the block contract allows: 16-bit sums inside a body must not saturate.
TEST(Matmul, ExtremeQuantsAreExact) {
  Random random;
  for (DType type :
       {DType::kQ8_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const int32_t n = 16, k = 256;
    for (int fill : {0x00, 0x7f, 0x80, 0xff}) {
      Weights weights(type, n, k, random);
      const int32_t block = int32_t(packed_group_bytes(weights.w.layout, k)) / (k / 32);
      for (int32_t b = 0; b < k / 32; b++) {  // overwrite quants only
        const bool w8 = weights.w.layout == PackedLayout::kW8,
                   nibbles = type == DType::kQ4_1 || type == DType::kQ4_K;
        std::memset(weights.data.data() + (w8 ? b / 2 * 1088 + b % 2 * 512 : b * block), fill,
                    nibbles ? 256 : 512);
      }
      for (float sign : {1.f, -1.f}) {
        Activations x(5, k, random);
        for (auto& v : x.f32) v = sign;
        x.quantise();
        const auto before = output_for(weights, 5, 16, random);
        const auto expected = multiply(Isa::kReference, weights, x, before, 16, false);
        for (Isa isa : fast_isas())
          ASSERT_TRUE(multiply(isa, weights, x, before, 16, false) == expected)
              << isa_name(isa) << " " << info(type).name << " " << fill << " " << sign;
      }
    }
  }
}

TEST(Matmul, NoRowsIsNoWork) {
  Random random;
  Weights weights(DType::kQ4_1, 16, 32, random);
  for (Isa isa : fast_isas()) {
    const int32_t count = 2;
    OpList ops;
    op_table(isa)->matmul(ops, {.rows = {&count, 4, 8},
                                .x_f32 = nullptr,
                                .ldx = 0,
                                .x_q8 = nullptr,
                                .w = weights.w,
                                .y = nullptr,
                                .ldy = 16,
                                .add = false});
    OpRunner().run(ops);
    EXPECT_EQ(ops.ops()[0].chunks(ops.ops()[0].params), 0);
  }
}

}  // namespace
}  // namespace gapless::testing
