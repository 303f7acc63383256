#include <cmath>

#include "kernels/numeric.h"
#include "kernels/testing/op_runner.h"

namespace gapless::testing {
namespace {

// Rows of a step: `begin` rows belong to others, `rows` are there, more would fit.
struct StepRows {
  int32_t begin, count, cap;
  StepRows(int32_t rows, int32_t begin) : begin(begin), count(begin + rows), cap(rows + 4) {}
  Rows rows() const { return {&count, begin, cap}; }
};

// Runs `push` on the reference and on every fast table in every order, each on fresh copies of `outputs`, and
// compares all bytes.
template <class Outputs, class Push>
Outputs expect_same(const Outputs& outputs, const Push& push, const char* what) {
  const auto run = [&](Isa isa, Order order) {
    Outputs copy = outputs;
    OpList ops;
    push(*op_table(isa), ops, copy);
    OpRunner().run(ops, order);
    return copy;
  };
  Outputs expected = run(Isa::kReference, Order::kForward);
  for (Isa isa : fast_isas())
    for (Order order : kOrders) EXPECT_TRUE(run(isa, order) == expected) << isa_name(isa) << " " << what;
  return expected;
}

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

struct KvOutputs {
  Exact<float> qkv;
  Exact<uint16_t> k, v;
  bool operator==(const KvOutputs& o) const { return qkv == o.qkv && k == o.k && v == o.v; }
};

struct RopeKvCase {
  int32_t n_heads, n_kv_heads, head_dim, rope_half, page_size, pages = 40;
  RopeStyle style;
  KvDtype dtype;
  bool norms;
  StepRows step;
  int64_t ld;
  Exact<float> cos_sin, q_norm, k_norm;
  std::vector<int32_t> positions, slots, page_table;

  explicit RopeKvCase(Random& random)
      : n_heads(0),
        n_kv_heads(random.between(1, 3)),
        head_dim(16 * random.between(1, 8)),
        rope_half(random.coin() ? head_dim / 2 : random.between(1, head_dim / 2)),
        page_size(random.between(1, 20)),
        style(random.coin() ? RopeStyle::kInterleaved : RopeStyle::kHalves),
        dtype(random.coin() ? KvDtype::kF16 : KvDtype::kBF16),
        norms(random.coin()),
        step(random.between(1, 30), random.between(0, 2)),
        ld(0),
        cos_sin(size_t(step.rows().size()) * 2 * size_t(rope_half)),
        q_norm(size_t(head_dim)),
        k_norm(size_t(head_dim)) {
    n_heads = n_kv_heads * random.between(1, 3);
    ld = (n_heads + 2 * n_kv_heads) * head_dim + random.below(3);
    for (size_t i = 0; i < cos_sin.size(); i += 2) {
      const float angle = random.normal(3.f);
      cos_sin[i] = std::cos(angle);
      cos_sin[i + 1] = std::sin(angle);
    }
    random.fill_normal(q_norm);
    random.fill_normal(k_norm);
    // Two slots of 20 pages; every row its own place.
    page_table = random.permutation(pages);
    const auto places = random.permutation(pages * page_size);
    for (int32_t i = 0; i < step.count; i++) {
      const int32_t place = places[size_t(i) % places.size()];
      slots.push_back(place / (pages / 2 * page_size));
      positions.push_back(place % (pages / 2 * page_size));
    }
  }
  size_t kv_elements() const {
    return size_t(pages) * size_t(n_kv_heads) * size_t(page_size) * size_t(head_dim);
  }
  RopeKvParams params(KvOutputs& o) const {
    return {
        .rows = step.rows(),
        .qkv = o.qkv.data(),
        .ld = ld,
        .n_heads = n_heads,
        .positions = positions.data(),
        .slots = slots.data(),
        .q_norm = norms ? q_norm.data() : nullptr,
        .k_norm = norms ? k_norm.data() : nullptr,
        .eps = 1e-6f,
        .style = style,
        .rope_half = rope_half,
        .cos_sin = cos_sin.data(),
        .kv = {o.k.data(), o.v.data(), dtype, n_kv_heads, head_dim, page_size, page_table.data(), pages / 2}};
  }
};

double kv_value(KvDtype dtype, uint16_t bits) {
  return double(dtype == KvDtype::kF16 ? numeric::f16_to_f32(bits) : numeric::bf16_to_f32(bits));
}

// One head by the textbook, in double.
std::vector<double> rope_head(const RopeKvCase& c, const float* head, const float* norm,
                              const float* cos_sin) {
  std::vector<double> x(head, head + c.head_dim);
  if (c.norms) {
    double sum = 0;
    for (double v : x) sum += v * v;
    for (int32_t d = 0; d < c.head_dim; d++)
      x[size_t(d)] *= double(norm[d]) / std::sqrt(sum / c.head_dim + 1e-6);
  }
  for (int32_t j = 0; j < c.rope_half; j++) {
    double& a = x[size_t(c.style == RopeStyle::kHalves ? j : 2 * j)];
    double& b = x[size_t(c.style == RopeStyle::kHalves ? j + c.rope_half : 2 * j + 1)];
    const double cos = double(cos_sin[2 * j]), sin = double(cos_sin[2 * j + 1]), a0 = a;
    a = a0 * cos - b * sin;
    b = a0 * sin + b * cos;
  }
  return x;
}

void expect_rope_values(const RopeKvCase& c, const KvOutputs& before, const KvOutputs& got) {
  const double tolerance = c.dtype == KvDtype::kF16 ? 1.0 / 1024 : 1.0 / 128;
  for (int32_t i = 0; i < c.step.rows().size(); i++) {
    const int32_t position = c.positions[size_t(c.step.begin + i)], slot = c.slots[size_t(c.step.begin + i)];
    const float* cos_sin = c.cos_sin.data() + i * 2 * c.rope_half;
    const float* row = before.qkv.data() + i * c.ld;
    for (int32_t h = 0; h < c.n_heads; h++) {
      const auto expected = rope_head(c, row + h * c.head_dim, c.q_norm.data(), cos_sin);
      for (int32_t d = 0; d < c.head_dim; d++)
        ASSERT_NEAR(double(got.qkv[size_t(i * c.ld + h * c.head_dim + d)]), expected[size_t(d)], 2e-5);
    }
    const int64_t page = c.page_table[size_t(slot * c.pages / 2 + position / c.page_size)];
    for (int32_t h = 0; h < c.n_kv_heads; h++) {
      const auto k = rope_head(c, row + (c.n_heads + h) * c.head_dim, c.k_norm.data(), cos_sin);
      const float* v = row + (c.n_heads + c.n_kv_heads + h) * c.head_dim;
      const int64_t at = (page * c.n_kv_heads + h) * c.page_size * c.head_dim;
      const int32_t offset = position % c.page_size;
      for (int32_t d = 0; d < c.head_dim; d++) {
        const int64_t k_at = at + k_element(c.page_size, c.head_dim, offset, d);
        ASSERT_NEAR(kv_value(c.dtype, got.k[size_t(k_at)]), k[size_t(d)],
                    tolerance * std::abs(k[size_t(d)]) + 2e-5);
        ASSERT_NEAR(kv_value(c.dtype, got.v[size_t(at + int64_t(offset) * c.head_dim + d)]), double(v[d]),
                    tolerance * std::abs(double(v[d])) + 1e-7);
      }
    }
  }
}

TEST(RopeKv, EveryTableGivesTheSameBits) {
  Random random;
  for (int round = 0; round < 60; round++) {
    RopeKvCase c(random);
    if (c.step.count > c.pages * c.page_size) continue;  // two rows would share a place
    KvOutputs before{Exact<float>(size_t(c.step.rows().size() * c.ld)), Exact<uint16_t>(c.kv_elements()),
                     Exact<uint16_t>(c.kv_elements())};
    random.fill_normal(before.qkv);
    const auto got = expect_same(
        before, [&](const OpTable& t, OpList& ops, KvOutputs& o) { t.rope_kv(ops, c.params(o)); }, "rope_kv");
    expect_rope_values(c, before, got);
  }
}

}  // namespace
}  // namespace gapless::testing
