#include <cmath>

#include "kernels/numeric.h"
#include "kernels/testing/same_bits.h"

namespace gapless::testing {
namespace {

struct ActBuffers {
  int64_t ld;
  Exact<float> f32;
  Exact<Q8Block> q8, q8_low;
  ActBuffers(int32_t rows, int32_t dim, int64_t ld, Random& random)
      : ld(ld),
        f32(size_t(rows - 1) * size_t(ld) + size_t(dim)),
        q8(size_t(rows) * size_t(dim / 32)),
        q8_low(q8.size()) {
    random.fill_normal(f32);
  }
  bool operator==(const ActBuffers& o) const { return f32 == o.f32 && q8 == o.q8 && q8_low == o.q8_low; }
  ActOut out(int32_t dim, bool want_f32, bool want_q8, bool want_low) {
    return {want_f32 ? f32.data() : nullptr, ld, want_q8 ? q8.data() : nullptr, dim,
            want_low ? q8_low.data() : nullptr};
  }
};

// The int8 blocks of row i are quantise_block of its float32 values; the low ones of what is left.
void expect_q8_of_f32(const ActBuffers& y, int32_t rows, int32_t dim, bool low) {
  for (int32_t i = 0; i < rows; i++) {
    const auto place = ActivationTiles(rows).place(i, dim / 32);
    for (int32_t b = 0; b < dim / 32; b++) {
      const size_t at = place.first + size_t(b) * place.stride;
      float x[32];
      std::copy_n(y.f32.data() + i * y.ld + 32 * b, 32, x);
      Q8Block block;
      quantise_block(x, block);
      ASSERT_EQ(std::memcmp(&block, &y.q8[at], sizeof(block)), 0) << i << "," << b;
      if (!low) continue;
      for (int32_t d = 0; d < 32; d++) x[d] -= block.s * float(block.q[d]);
      quantise_block(x, block);
      ASSERT_EQ(std::memcmp(&block, &y.q8_low[at], sizeof(block)), 0) << i << "," << b;
    }
  }
}

TEST(RmsNorm, EveryTableGivesTheSameBits) {
  Random random;
  for (int round = 0; round < 60; round++) {
    const bool q8 = random.coin(), low = q8 && random.coin(), f32 = !q8 || random.coin(),
               gathered = random.coin(), weighted = random.coin();
    const int32_t dim = q8 ? 32 * random.between(1, 30) : random.between(1, 700);
    const StepRows step(random.between(1, 40), random.between(0, 3));
    const int32_t rows = step.rows().size(), ldx = dim + random.below(3), all = step.count + 5;
    Exact<float> x(size_t(all - 1) * size_t(ldx) + size_t(dim)), weight(static_cast<size_t>(dim));
    random.fill_normal(x, 3.f);
    random.fill_normal(weight);
    const auto order = random.permutation(all);
    const RmsNormParams p{.rows = step.rows(),
                          .gather = gathered ? order.data() : nullptr,
                          .x = x.data(),
                          .ldx = ldx,
                          .weight = weighted ? weight.data() : nullptr,
                          .eps = 1e-5f,
                          .out = {},
                          .residual = nullptr,
                          .ld_residual = 0};
    const auto y = expect_same(
        ActBuffers(rows, dim, dim + 16, random),
        [&](const OpTable& t, OpList& ops, ActBuffers& o) {
          RmsNormParams with = p;
          with.out = o.out(dim, f32, q8, low);
          t.rms_norm(ops, with);
        },
        "rms_norm");
    if (q8 && f32) expect_q8_of_f32(y, rows, dim, low);
    if (!f32) continue;
    for (int32_t i = 0; i < rows; i++) {
      const float* row = x.data() + (gathered ? order[size_t(step.begin + i)] : step.begin + i) * ldx;
      double sum = 0;
      for (int32_t d = 0; d < dim; d++) sum += double(row[d]) * double(row[d]);
      const double r = 1 / std::sqrt(sum / dim + 1e-5);
      for (int32_t d = 0; d < dim; d++) {
        const double e = double(row[d]) * r * (weighted ? double(weight[size_t(d)]) : 1);
        ASSERT_NEAR(double(y.f32[size_t(i * y.ld + d)]), e, 1e-5 * std::abs(e) + 1e-7);
      }
    }
  }
}

TEST(RmsNorm, AddsToTheResidual) {
  Random random;
  for (int round = 0; round < 20; round++) {
    const int32_t dim = random.between(1, 700);
    const StepRows step(random.between(1, 20), random.between(0, 3));
    Exact<float> x(size_t(step.count) * size_t(dim)), weight(static_cast<size_t>(dim)), residual(x.size());
    random.fill_normal(x);
    random.fill_normal(weight);
    random.fill_normal(residual);
    const auto push = [&](float* out, float* to) {
      return RmsNormParams{.rows = step.rows(),
                           .gather = nullptr,
                           .x = x.data(),
                           .ldx = dim,
                           .weight = weight.data(),
                           .eps = 1e-6f,
                           .out = {out, dim, nullptr, dim},
                           .residual = to,
                           .ld_residual = dim};
    };
    const auto got = expect_same(
        residual,
        [&](const OpTable& t, OpList& ops, Exact<float>& r) { t.rms_norm(ops, push(nullptr, r.data())); },
        "residual");
    Exact<float> y(size_t(step.rows().size()) * size_t(dim));
    OpList ops;
    op_table(Isa::kReference)->rms_norm(ops, push(y.data(), nullptr));
    OpRunner().run(ops);
    for (size_t i = 0; i < residual.size(); i++) {
      const size_t first = size_t(step.begin * dim);
      ASSERT_EQ(got[i], i < first ? residual[i] : residual[i] + y[i - first]);
    }
  }
}

TEST(Embed, EveryTableGivesTheSameBits) {
  Random random;
  const int32_t n = 37, k = 64;
  std::vector<std::byte> blocks(size_t(n) * size_t(k) / 32 * 34);
  for (auto& b : blocks) b = std::byte(random.rng()());
  for (size_t at = 0; at < blocks.size(); at += 34) {
    const uint16_t d = numeric::f32_to_f16(random.normal(0.02f));
    std::memcpy(&blocks[at], &d, 2);
  }
  PackedMatrix table{PackedLayout::kW8, n, k, nullptr};
  Exact<std::byte> data(packed_bytes(table.layout, n, k));
  pack_rows(DType::kQ8_0, blocks.data(), n, table, 0, data.data());
  table.data = data.data();
  const StepRows step(random.between(1, 60), 2);
  std::vector<int32_t> ids(size_t(step.count));
  for (auto& id : ids) id = random.below(n);
  const auto y = expect_same(
      Exact<float>(size_t(step.rows().size()) * 70),
      [&](const OpTable& t, OpList& ops, Exact<float>& o) {
        t.embed(ops, {.rows = step.rows(),
                      .ids = ids.data(),
                      .table = table,
                      .scale = 1.7f,
                      .out = o.data(),
                      .ld_out = 70});
      },
      "embed");
  std::vector<float> dense(size_t(n) * size_t(k));
  dequantise(DType::kQ8_0, blocks.data(), int64_t(dense.size()), dense.data());
  for (int32_t i = 0; i < step.rows().size(); i++)
    for (int32_t d = 0; d < k; d++)
      ASSERT_EQ(y[size_t(i * 70 + d)], dense[size_t(ids[size_t(step.begin + i)] * k + d)] * 1.7f);
}

TEST(GatedActivation, EveryTableGivesTheSameBits) {
  Random random;
  for (int round = 0; round < 60; round++) {
    const bool q8 = random.coin(), low = q8 && random.coin(), f32 = !q8 || random.coin();
    const Activation activation = random.coin() ? Activation::kSilu : Activation::kGeluTanh;
    const int32_t dim = q8 ? 32 * random.between(1, 60) : random.between(1, 1900);
    const StepRows step(random.between(1, 20), random.between(0, 2));
    const int32_t rows = step.rows().size(), up = dim + random.below(40), ld = up + dim + random.below(3);
    Exact<float> gate_up(size_t(rows - 1) * size_t(ld) + size_t(up + dim));
    random.fill_normal(gate_up, 4.f);
    gate_up[0] = 1000.f;  // where exp overflows and underflows
    if (dim > 1) gate_up[1] = -1000.f;
    const auto y = expect_same(
        ActBuffers(rows, dim, dim, random),
        [&](const OpTable& t, OpList& ops, ActBuffers& o) {
          t.gated_activation(ops, {.rows = step.rows(),
                                   .gate_up = gate_up.data(),
                                   .ld = ld,
                                   .up_offset = up,
                                   .activation = activation,
                                   .out = o.out(dim, f32, q8, low)});
        },
        "gated");
    if (q8 && f32) expect_q8_of_f32(y, rows, dim, low);
    if (!f32) continue;
    for (int32_t i = 0; i < rows; i++)
      for (int32_t d = 0; d < dim; d++) {
        const double g = double(gate_up[size_t(i * ld + d)]), u = double(gate_up[size_t(i * ld + up + d)]);
        const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        const double act =
            activation == Activation::kSilu ? g / (1 + std::exp(-g)) : 0.5 * g * (1 + std::tanh(inner));
        ASSERT_NEAR(double(y.f32[size_t(i * y.ld + d)]), act * u, 1e-5 * std::abs(g * u) + 1e-30);
      }
  }
}

TEST(RopeTable, EveryTableGivesTheSameBits) {
  Random random;
  const int32_t half = 24;
  const StepRows step(50, 1);
  std::vector<double> inv_freq(half);
  for (int j = 0; j < half; j++) inv_freq[size_t(j)] = std::pow(10000.0, -double(j) / half);
  std::vector<int32_t> positions(size_t(step.count));
  for (auto& p : positions) p = random.below(100000);
  const auto y = expect_same(
      Exact<float>(50 * 2 * half),
      [&](const OpTable& t, OpList& ops, Exact<float>& o) {
        t.rope_table(ops, {.rows = step.rows(),
                           .positions = positions.data(),
                           .inv_freq = inv_freq.data(),
                           .half = half,
                           .out = o.data()});
      },
      "rope_table");
  for (int32_t i = 0; i < 50; i++)
    for (int32_t j = 0; j < half; j++) {
      const double angle = positions[size_t(1 + i)] * inv_freq[size_t(j)];
      EXPECT_FLOAT_EQ(y[size_t((i * half + j) * 2)], float(std::cos(angle)));
      EXPECT_FLOAT_EQ(y[size_t((i * half + j) * 2 + 1)], float(std::sin(angle)));
    }
}

}  // namespace
}  // namespace gapless::testing
