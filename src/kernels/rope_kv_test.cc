#include <cmath>
#include <span>

#include "kernels/numeric.h"
#include "kernels/testing/same_bits.h"

namespace gapless::testing {
namespace {

struct KvOutputs {
  Exact<float> qkv;
  Exact<std::byte> k, v;
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
        dtype(kKvDtypes[random.below(3)]),
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
  size_t kv_bytes() const {
    return size_t(pages) * size_t(n_kv_heads) * size_t(page_size) * size_t(kv_row_bytes(dtype, head_dim));
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

// Element `index` of the rows at `page`; `scale` is where the scale of its row is.
double kv_value(KvDtype dtype, const std::byte* page, int64_t index, const std::byte* scale) {
  if (dtype == KvDtype::kI8)
    return double(reinterpret_cast<const int8_t*>(page)[index]) *
           double(*reinterpret_cast<const float*>(scale));
  const uint16_t bits = reinterpret_cast<const uint16_t*>(page)[index];
  return double(dtype == KvDtype::kF16 ? numeric::f16_to_f32(bits) : numeric::bf16_to_f32(bits));
}
// How far a stored element may be from x, an element of `row`.
double kv_tolerance(KvDtype dtype, double x, std::span<const double> row) {
  if (dtype == KvDtype::kF16) return std::abs(x) / 1024 + 1e-7;
  if (dtype == KvDtype::kBF16) return std::abs(x) / 128 + 1e-7;
  double largest = 0;
  for (const double y : row) largest = std::max(largest, std::abs(y));
  return largest / 127 / 2 * 1.001 + 1e-7;
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

void expect_rope_values(const RopeKvCase& c, const KvOutputs& before, KvOutputs got) {
  const KvLayer kv = c.params(got).kv;
  for (int32_t i = 0; i < c.step.rows().size(); i++) {
    const int32_t position = c.positions[size_t(c.step.begin + i)], slot = c.slots[size_t(c.step.begin + i)];
    const float* cos_sin = c.cos_sin.data() + i * 2 * c.rope_half;
    const float* row = before.qkv.data() + i * c.ld;
    for (int32_t h = 0; h < c.n_heads; h++) {
      const auto expected = rope_head(c, row + h * c.head_dim, c.q_norm.data(), cos_sin);
      for (int32_t d = 0; d < c.head_dim; d++)
        ASSERT_NEAR(double(got.qkv[size_t(i * c.ld + h * c.head_dim + d)]), expected[size_t(d)], 2e-5);
    }
    for (int32_t h = 0; h < c.n_kv_heads; h++) {
      const auto k = rope_head(c, row + (c.n_heads + h) * c.head_dim, c.k_norm.data(), cos_sin);
      const float* v_row = row + (c.n_heads + c.n_kv_heads + h) * c.head_dim;
      const std::vector<double> v(v_row, v_row + c.head_dim);
      const int32_t offset = position % c.page_size;
      const int64_t at = kv.page_begin(slot, h, position), scale = at + kv.scale_at(offset);
      for (int32_t d = 0; d < c.head_dim; d++) {
        const double x = k[size_t(d)], y = v[size_t(d)];
        const int64_t k_at = k_element(c.page_size, c.head_dim, offset, d);
        ASSERT_NEAR(kv_value(c.dtype, kv.k + at, k_at, kv.k + scale), x, kv_tolerance(c.dtype, x, k) + 2e-5);
        ASSERT_NEAR(kv_value(c.dtype, kv.v + at, int64_t(offset) * c.head_dim + d, kv.v + scale), y,
                    kv_tolerance(c.dtype, y, v));
      }
    }
  }
}

TEST(RopeKv, EveryTableGivesTheSameBits) {
  Random random;
  for (int round = 0; round < 60; round++) {
    RopeKvCase c(random);
    if (c.step.count > c.pages * c.page_size) continue;  // two rows would share a place
    KvOutputs before{Exact<float>(size_t(c.step.rows().size() * c.ld)), Exact<std::byte>(c.kv_bytes()),
                     Exact<std::byte>(c.kv_bytes())};
    random.fill_normal(before.qkv);
    const auto got = expect_same(
        before, [&](const OpTable& t, OpList& ops, KvOutputs& o) { t.rope_kv(ops, c.params(o)); }, "rope_kv");
    expect_rope_values(c, before, got);
  }
}

// int8 rows of nothing but zeros, tiny numbers, or with one that is not finite: the same in every table, and
// a fault shows in the scale.
TEST(RopeKv, Int8RowsOfOddValuesAreTheSame) {
  Random random;
  const float odd[] = {0.f, -0.f, 1e-35f, -3e-31f, 3e38f, INFINITY, -INFINITY, NAN, -NAN};
  for (int round = 0; round < 60; round++) {
    RopeKvCase c(random);
    c.dtype = KvDtype::kI8;
    if (c.step.count > c.pages * c.page_size) continue;
    KvOutputs before{Exact<float>(size_t(c.step.rows().size() * c.ld)), Exact<std::byte>(c.kv_bytes()),
                     Exact<std::byte>(c.kv_bytes())};
    // V alone, which is stored as it comes: a NaN in q or k may be another NaN in another table.
    const int32_t v_begin = (c.n_heads + c.n_kv_heads) * c.head_dim;
    for (int32_t i = 0; i < c.step.rows().size(); i++) {
      float* const v = before.qkv.data() + i * c.ld + v_begin;
      const float most = odd[random.below(9)], few = odd[random.below(9)];
      for (int32_t d = 0; d < c.n_kv_heads * c.head_dim; d++) v[d] = random.below(20) ? most : few;
    }
    expect_same(
        before, [&](const OpTable& t, OpList& ops, KvOutputs& o) { t.rope_kv(ops, c.params(o)); }, "rope_kv");
  }
}

}  // namespace
}  // namespace gapless::testing
