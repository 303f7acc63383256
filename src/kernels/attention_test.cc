#include <algorithm>
#include <cmath>

#include "kernels/numeric.h"
#include "kernels/testing/op_runner.h"

namespace gapless::testing {
namespace {

struct Shape {
  int32_t n_heads, n_kv_heads, head_dim, window;
  KvDtype dtype = KvDtype::kF16;
  int32_t group() const { return n_heads / n_kv_heads; }
  int32_t width() const { return n_heads * head_dim; }
};

// The K or V of one position and head: its elements, behind them its scale, if it has one.
using KvRow = std::vector<std::byte>;

KvRow random_row(const Shape& shape, Random& random) {
  KvRow row(size_t(kv_row_bytes(shape.dtype, shape.head_dim)));
  std::vector<float> x(size_t(shape.head_dim));
  random.fill_normal(x);
  if (shape.dtype == KvDtype::kI8) {
    const float scale = quantise_row(x.data(), shape.head_dim, reinterpret_cast<int8_t*>(row.data()));
    std::memcpy(&row[x.size()], &scale, sizeof scale);
    return row;
  }
  const auto round = shape.dtype == KvDtype::kF16 ? numeric::f32_to_f16 : numeric::f32_to_bf16;
  for (size_t d = 0; d < x.size(); d++) {
    const uint16_t bits = round(x[d]);
    std::memcpy(&row[2 * d], &bits, sizeof bits);
  }
  return row;
}

double row_value(KvDtype dtype, const KvRow& row, size_t d) {
  if (dtype == KvDtype::kI8) {
    float scale;
    std::memcpy(&scale, &row[row.size() - sizeof scale], sizeof scale);
    return double(scale) * double(int8_t(row[d]));
  }
  uint16_t bits;
  std::memcpy(&bits, &row[2 * d], sizeof bits);
  return double(dtype == KvDtype::kF16 ? numeric::f16_to_f32(bits) : numeric::bf16_to_f32(bits));
}

// K, V and q of a few sequences by (sequence, position), independent of any paging.
struct Sequences {
  Shape shape;
  std::vector<int32_t> lengths;
  std::vector<std::vector<KvRow>> k, v;  // [sequence][position * n_kv_heads + head]
  std::vector<std::vector<float>> q;     // [sequence][position * width + ...]

  Sequences(const Shape& shape, std::vector<int32_t> lengths, Random& random)
      : shape(shape), lengths(std::move(lengths)) {
    for (int32_t length : this->lengths) {
      const size_t n = size_t(length * shape.n_kv_heads);
      k.emplace_back(n);
      v.emplace_back(n);
      q.emplace_back(size_t(length * shape.width()));
      for (auto& row : k.back()) row = random_row(shape, random);
      for (auto& row : v.back()) row = random_row(shape, random);
      random.fill_normal(q.back());
    }
  }
};

// The sequences in a paged pool: pages in random order, everything that no sequence owns is a NaN.
struct Pool {
  int32_t page_size;
  int64_t ld_page_table;
  Exact<std::byte> k, v;
  std::vector<int32_t> page_table;

  Pool(const Sequences& s, int32_t page_size, Random& random)
      : Pool(s, page_size, pages_of(s, page_size), random) {}
  KvLayer layer(const Shape& shape) {
    return {k.data(),       v.data(),  shape.dtype,       shape.n_kv_heads,
            shape.head_dim, page_size, page_table.data(), ld_page_table};
  }

 private:
  static int32_t pages_of(const Sequences& s, int32_t page_size) {
    int32_t pages = 0;
    for (int32_t length : s.lengths) pages += (length + page_size - 1) / page_size;
    return pages;
  }
  Pool(const Sequences& s, int32_t page_size, int32_t pages, Random& random)
      : page_size(page_size),
        ld_page_table(*std::max_element(s.lengths.begin(), s.lengths.end()) / page_size + 2),
        k(size_t(pages) * size_t(page_size * s.shape.n_kv_heads) *
          size_t(kv_row_bytes(s.shape.dtype, s.shape.head_dim))),
        v(k.size()),
        page_table(s.lengths.size() * size_t(ld_page_table),
                   -1000000) {  // an unused entry must never be followed
    std::fill(k.begin(), k.end(), std::byte{0xff});
    std::fill(v.begin(), v.end(), std::byte{0xff});
    const auto order = random.permutation(pages);
    size_t next = 0;
    for (size_t slot = 0; slot < s.lengths.size(); slot++)
      for (int32_t position = 0; position < s.lengths[slot]; position++) {
        int32_t& page = page_table[slot * size_t(ld_page_table) + size_t(position / page_size)];
        if (position % page_size == 0) page = order[next++];
        copy_position(s, slot, position);
      }
  }
  void copy_position(const Sequences& s, size_t slot, int32_t position) {
    const KvLayer kv = layer(s.shape);
    const int32_t offset = position % page_size, dim = kv.head_dim;
    const auto bytes = size_t(kv_element_bytes(kv.dtype)), elements = bytes * size_t(dim);
    for (int32_t h = 0; h < kv.n_kv_heads; h++) {
      const size_t row = size_t(position * kv.n_kv_heads + h);
      const KvRow &k_row = s.k[slot][row], &v_row = s.v[slot][row];
      const auto at = size_t(kv.page_begin(int32_t(slot), h, position));
      for (int32_t d = 0; d < dim; d++)
        std::memcpy(&k[at + bytes * size_t(k_element(page_size, dim, offset, d))], &k_row[bytes * size_t(d)],
                    bytes);
      std::memcpy(&v[at + elements * size_t(offset)], v_row.data(), elements);
      if (kv.dtype != KvDtype::kI8) continue;
      std::memcpy(&k[at + size_t(kv.scale_at(offset))], &k_row[elements], sizeof(float));
      std::memcpy(&v[at + size_t(kv.scale_at(offset))], &v_row[elements], sizeof(float));
    }
  }
};

struct RowRun {
  int32_t slot, pos_begin, rows;
};

struct Outputs {
  Exact<float> f32;
  Exact<Q8Block> q8;
  bool operator==(const Outputs& o) const { return f32 == o.f32 && q8 == o.q8; }
};

// Memory of an AttentionSplit.
struct Split {
  int32_t chunks;
  Exact<float> partials;
  Exact<int32_t> arrived;
  Split(int32_t chunks, int64_t capacity)
      : chunks(chunks), partials(size_t(capacity)), arrived(size_t(chunks)) {
    std::fill(partials.begin(), partials.end(), NAN);
  }
  AttentionSplit params() { return {chunks, partials.data(), int64_t(partials.size()), arrived.data()}; }
  bool used() const { return partials.size() > 0 && !std::isnan(partials[0]); }
};

// One step that computes `runs`, cut into tiles of at most tile_rows rows.
Outputs attend(Isa isa, const Sequences& s, Pool& pool, const std::vector<RowRun>& runs, int32_t tile_rows,
               bool f32, bool q8, Order order = Order::kForward, const AttentionSplit& split = {}) {
  const Shape& shape = s.shape;
  std::vector<AttentionTile> tiles;
  int32_t rows = 0;
  for (const RowRun& run : runs)
    for (int32_t i = 0; i < run.rows;) {
      const int32_t n = std::min(tile_rows, run.rows - i);
      tiles.push_back({run.slot, rows, n, run.pos_begin + i});
      rows += n;
      i += n;
    }
  const int32_t n_tiles = int32_t(tiles.size()), ldq = shape.width() + 7;
  Exact<float> q(size_t((rows - 1) * ldq + shape.width()));
  for (const AttentionTile& t : tiles)
    for (int32_t i = 0; i < t.rows; i++)
      std::copy_n(&s.q[size_t(t.slot)][size_t((t.pos_begin + i) * shape.width())], shape.width(),
                  &q[size_t((t.row_begin + i) * ldq)]);
  Outputs out{Exact<float>(size_t(rows * shape.width())),
              Exact<Q8Block>(size_t(q8 ? rows * shape.width() / 32 : 0))};
  OpList ops;
  op_table(isa)->attention(ops, {.rows = {&rows, 0, rows + 3},
                                 .tiles = tiles.data(),
                                 .n_tiles = &n_tiles,
                                 .max_tiles = n_tiles + 2,
                                 .q = q.data(),
                                 .ldq = ldq,
                                 .n_heads = shape.n_heads,
                                 .scale = 0.3f,
                                 .window = shape.window,
                                 .kv = pool.layer(shape),
                                 .out = {f32 ? out.f32.data() : nullptr, shape.width(),
                                         q8 ? out.q8.data() : nullptr, shape.width()},
                                 .split = split});
  OpRunner().run(ops, order);
  return out;
}

Shape random_shape(Random& random) {
  const int32_t kv = random.between(1, 3), group = random.between(1, 5),
                dims[] = {16, 32, 48, 64, 80, 128, 256};
  return {kv * group, kv, dims[random.below(7)], random.coin() ? 0 : random.between(1, 150),
          kKvDtypes[random.below(3)]};
}

TEST(Attention, ReferenceIsSoftmaxAttention) {
  Random random;
  for (const Shape& shape :
       {Shape{4, 2, 32, 0}, Shape{3, 1, 64, 50, KvDtype::kBF16}, Shape{4, 1, 48, 70, KvDtype::kI8}}) {
    const Sequences s(shape, {150}, random);
    Pool pool(s, 16, random);
    const auto got = attend(Isa::kReference, s, pool, {{0, 0, 150}}, 8, true, false);
    for (int32_t position = 0; position < 150; position++)
      for (int32_t head = 0; head < shape.n_heads; head++) {
        const int32_t first = shape.window ? std::max(0, position - shape.window + 1) : 0,
                      dim = shape.head_dim;
        std::vector<double> o(static_cast<size_t>(dim));
        double l = 0;
        for (int32_t j = first; j <= position; j++) {
          const size_t row = size_t(j * shape.n_kv_heads + head / shape.group());
          double dot = 0;
          for (int32_t d = 0; d < dim; d++)
            dot += double(s.q[0][size_t(position * shape.width() + head * dim + d)]) *
                   row_value(shape.dtype, s.k[0][row], size_t(d));
          const double p = std::exp(double(0.3f) * dot);
          l += p;
          for (int32_t d = 0; d < dim; d++)
            o[size_t(d)] += p * row_value(shape.dtype, s.v[0][row], size_t(d));
        }
        for (int32_t d = 0; d < dim; d++)
          ASSERT_NEAR(double(got.f32[size_t(position * shape.width() + head * dim + d)]), o[size_t(d)] / l,
                      1e-5);
      }
  }
}

TEST(Attention, EveryTableGivesTheSameBits) {
  Random random;
  for (int round = 0; round < 60; round++) {
    const Shape shape = random_shape(random);
    const Sequences s(shape, {random.between(1, 300), random.between(1, 100), random.between(1, 30)}, random);
    const int32_t page_sizes[] = {1, 16, 64, 7};
    Pool pool(s, page_sizes[random.below(4)], random);
    std::vector<RowRun> runs;
    for (int32_t slot : random.permutation(3)) {
      const int32_t rows = std::min(s.lengths[size_t(slot)], random.coin() ? 1 : random.between(1, 40));
      runs.push_back({slot, s.lengths[size_t(slot)] - rows, rows});
    }
    const bool q8 = shape.group() * shape.head_dim % 32 == 0 && random.coin(), f32 = !q8 || random.coin();
    const int32_t tile_rows = random.between(1, kAttentionTileRows);
    const auto expected = attend(Isa::kReference, s, pool, runs, tile_rows, f32, q8);
    for (float x : expected.f32) ASSERT_FALSE(std::isnan(x));
    for (Isa isa : fast_isas())
      for (Order order : kOrders)
        ASSERT_TRUE(attend(isa, s, pool, runs, tile_rows, f32, q8, order) == expected)
            << isa_name(isa) << " " << kv_dtype_name(shape.dtype) << " heads " << shape.n_heads << "/"
            << shape.n_kv_heads << " dim " << shape.head_dim << " window " << shape.window << " page "
            << pool.page_size << " tile " << tile_rows << " lengths " << s.lengths[0] << " " << s.lengths[1]
            << " " << s.lengths[2];
  }
}

// Many heads on one KV head, more than one pass of a tile.
TEST(Attention, WideGroupsGiveTheSameBits) {
  Random random;
  for (int32_t group : {16, 33, 64}) {
    const Shape shape{group, 1, 32, 0};
    const Sequences s(shape, {70}, random);
    Pool pool(s, 16, random);
    const auto expected = attend(Isa::kReference, s, pool, {{0, 50, 20}}, 8, true, true);
    for (Isa isa : fast_isas())
      EXPECT_TRUE(attend(isa, s, pool, {{0, 50, 20}}, 8, true, true) == expected) << isa_name(isa);
  }
}

// A row's bits do not depend on the page size, the tiles, the chunks of a prompt or the other rows of the
// step.
TEST(Attention, CutsDoNotMatter) {
  Random random;
  std::vector<Isa> isas = fast_isas();
  isas.push_back(Isa::kReference);
  for (int round = 0; round < 6; round++)
    for (Isa isa : isas) {
      const Shape shape = random_shape(random);
      const int32_t length = random.between(100, 200);
      const Sequences s(shape, {length, 20}, random);
      Pool pool(s, 16, random);
      const auto whole = attend(isa, s, pool, {{0, 0, length}}, 8, true, false);
      for (int32_t page_size : {1, 64}) {
        Pool other(s, page_size, random);
        ASSERT_TRUE(attend(isa, s, other, {{0, 0, length}}, 8, true, false) == whole)
            << isa_name(isa) << " page " << page_size;
      }
      for (int32_t begin = 0; begin < length;) {
        const int32_t rows = std::min(length - begin, random.coin() ? 1 : random.between(1, 50));
        const auto part =
            attend(isa, s, pool, {{1, 10, 10}, {0, begin, rows}}, random.between(1, 8), true, false);
        ASSERT_EQ(std::memcmp(&part.f32[size_t(10 * shape.width())],
                              &whole.f32[size_t(begin * shape.width())], size_t(rows * shape.width()) * 4),
                  0)
            << isa_name(isa) << " rows " << begin << " + " << rows << " window " << shape.window;
        begin += rows;
      }
    }
}

// Into how many chunks the KV blocks are cut, and which of them is last, changes no bit.
TEST(Attention, SplitsDoNotMatter) {
  Random random;
  int used = 0;
  for (int round = 0; round < 30; round++) {
    const Shape shape = random_shape(random);
    const Sequences s(shape, {random.between(400, 1000), random.between(1, 600)}, random);
    Pool pool(s, random.coin() ? 16 : 5, random);
    std::vector<RowRun> runs;
    for (int32_t slot = 0; slot < random.between(1, 2); slot++) {
      const int32_t rows = std::min(s.lengths[size_t(slot)], random.coin() ? 1 : random.between(1, 9));
      runs.push_back({slot, s.lengths[size_t(slot)] - rows, rows});
    }
    for (Isa isa : fast_isas()) {
      const auto whole = attend(isa, s, pool, runs, 8, true, false);
      for (int32_t chunks : {2, random.between(3, 30), 200})
        for (Order order : kOrders) {
          Split split(chunks, random.coin() ? 1 << 20 : random.between(0, 1 << 14));
          ASSERT_TRUE(attend(isa, s, pool, runs, 8, true, false, order, split.params()) == whole)
              << isa_name(isa) << " " << kv_dtype_name(shape.dtype) << " chunks " << chunks << " capacity "
              << split.partials.size() << " window " << shape.window << " lengths " << s.lengths[0] << " "
              << s.lengths[1];
          for (int32_t n : split.arrived) ASSERT_EQ(n, 0);
          used += split.used();
        }
    }
  }
  EXPECT_TRUE(used > 0 || fast_isas().empty());
}

}  // namespace
}  // namespace gapless::testing
