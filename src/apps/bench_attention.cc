#include "apps/bench_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/numeric.h"
#include "kernels/op_work.h"
#include "kernels/roof.h"

namespace gapless {

namespace {

constexpr int32_t kPageSize = 16;

int32_t pages_per_sequence(const AttentionShape& s) {
  return (s.context + kPageSize - 1) / kPageSize;
}
// K, or V, of one page and of one layer.
int64_t page_bytes(const AttentionShape& s) {
  return int64_t(s.n_kv_heads) * kPageSize * kv_row_bytes(s.dtype, s.head_dim);
}
int64_t layer_bytes(const AttentionShape& s) {
  return int64_t(s.sequences) * pages_per_sequence(s) * page_bytes(s);
}
int64_t split_floats(const AttentionShape& s) {
  return attention_split_floats(s.sequences * std::min(s.rows, kAttentionTileRows), s.context, s.n_heads,
                                s.head_dim);
}

// Normally distributed elements, in what order does not matter, and scales that make them so.
void fill_page(const AttentionShape& s, std::byte* page) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  const int32_t elements = kPageSize * s.head_dim;
  for (int32_t h = 0; h < s.n_kv_heads; h++, page += kPageSize * kv_row_bytes(s.dtype, s.head_dim)) {
    for (int32_t i = 0; i < elements; i++) {
      const float x = normal(rng);
      if (s.dtype == KvDtype::kI8) {
        reinterpret_cast<int8_t*>(page)[i] = int8_t(std::clamp(x * 32, -127.f, 127.f));
      } else {
        reinterpret_cast<uint16_t*>(page)[i] =
            s.dtype == KvDtype::kF16 ? numeric::f32_to_f16(x) : numeric::f32_to_bf16(x);
      }
    }
    if (s.dtype == KvDtype::kI8) std::fill_n(reinterpret_cast<float*>(page + elements), kPageSize, 1.f / 32);
  }
}

}  // namespace

struct AttentionBench::Operands {
  AttentionShape shape;
  int32_t n_rows, width, n_tiles = 0;
  std::vector<float> q;
  std::vector<Q8Block> out;
  std::vector<AttentionTile> tiles;
  std::vector<int32_t> page_table;

  explicit Operands(const AttentionShape& s)
      : shape(s),
        n_rows(s.sequences * s.rows),
        width(s.n_heads * s.head_dim),
        q(size_t(n_rows) * size_t(width)),
        out(size_t(n_rows) * size_t((width + 31) / 32)),
        page_table(size_t(s.sequences * pages_per_sequence(s))) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (float& x : q) x = normal(rng);
    std::iota(page_table.begin(), page_table.end(), 0);
    std::shuffle(page_table.begin(), page_table.end(), rng);
    for (int32_t slot = 0; slot < s.sequences; slot++)
      for (int32_t i = 0; i < s.rows; i += kAttentionTileRows)
        tiles.push_back(
            {slot, slot * s.rows + i, std::min(kAttentionTileRows, s.rows - i), s.context - s.rows + i});
    n_tiles = int32_t(tiles.size());
  }
  AttentionParams params(std::byte* k, std::byte* v) {
    return {.rows = {&n_rows, 0, n_rows},
            .tiles = tiles.data(),
            .n_tiles = &n_tiles,
            .max_tiles = n_tiles,
            .q = q.data(),
            .ldq = width,
            .n_heads = shape.n_heads,
            .scale = 1 / std::sqrt(float(shape.head_dim)),
            .window = 0,
            .kv = {k, v, shape.dtype, shape.n_kv_heads, shape.head_dim, kPageSize, page_table.data(),
                   pages_per_sequence(shape)},
            .out = {.q8 = out.data(), .dim = width}};
  }
};

Status AttentionBench::reserve(const std::vector<AttentionShape>& shapes) {
  size_t bytes = bytes_beyond_cache();
  int64_t floats = 0;
  for (const AttentionShape& s : shapes) {
    bytes = std::max(bytes, size_t(2 * layer_bytes(s)));
    floats = std::max(floats, split_floats(s));
  }
  ASSIGN_OR_RETURN(kv_, timer_.device().allocate(bytes, MemoryKind::kDevice));
  const size_t split_bytes = size_t(floats) * sizeof(float) + size_t(chunks_ + 1) * sizeof(int32_t);
  ASSIGN_OR_RETURN(split_, timer_.device().allocate(split_bytes, MemoryKind::kDevice));
  return {};
}

AttentionSpeed AttentionBench::measure(const AttentionShape& s) {
  const int64_t layer = layer_bytes(s), page = page_bytes(s);
  const int64_t layers = int64_t(kv_.bytes()) / (2 * layer), floats = split_floats(s);
  CHECK(layers > 0 && floats * int64_t(sizeof(float)) <= int64_t(split_.bytes()), "a shape not reserved");
  auto* const kv = kv_.as<std::byte>();
  fill_page(s, kv);
  for (int64_t at = page; at < 2 * layers * layer; at += page) std::memcpy(kv + at, kv, size_t(page));

  Operands operands(s);
  const AttentionSplit split{.chunks = chunks_,
                             .partials = split_.as<float>(),
                             .capacity = floats,
                             .arrived = reinterpret_cast<int32_t*>(split_.as<float>() + floats)};
  std::memset(split.arrived, 0, size_t(chunks_) * sizeof(int32_t));
  const auto params = [&](int64_t i) {
    std::byte* const k = kv + i % layers * 2 * layer;
    AttentionParams p = operands.params(k, k + layer);
    p.split = split;
    return p;
  };
  const double seconds =
      timer_.best_seconds([&](OpList& ops, int64_t i) { table_.attention(ops, params(i)); });
  return {seconds, attention_work(params(0))};
}

}  // namespace gapless
