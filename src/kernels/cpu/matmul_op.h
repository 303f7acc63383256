// The matmul op: which groups of 16 outputs make a chunk, and the walk over the tiles of each.
#pragma once

#include <algorithm>

#include "kernels/cpu/bodies.h"
#include "kernels/ops.h"

namespace gapless::cpu {

// Chunks are ranges of groups. Weights pass from memory once; the rows' tiles stay in cache.
struct MatmulChunks {
  int32_t groups, per_chunk;
  explicit MatmulChunks(const MatmulParams& p) : groups(p.rows.size() > 0 ? p.w.groups() : 0) {
    const int64_t bytes = int64_t(packed_group_bytes(p.w.layout, p.w.k)),
                  products = int64_t(p.rows.size()) * p.w.k;
    // A microsecond or so, so that handing a chunk out costs little: 32 KB from memory, or as long in
    // arithmetic.
    const int32_t least = groups_for(std::max<int64_t>(bytes, 2 * products), 32 << 10);
    // Some groups in a row, because each prefetches the next one; but enough chunks for 16 workers to end
    // together.
    const int32_t good = std::min(groups_for(products, 64 << 10), groups / 24);
    per_chunk = std::max({1, least, good, (groups + 127) / 128});
  }
  int32_t count() const { return (groups + per_chunk - 1) / per_chunk; }
  int32_t begin(int32_t chunk) const { return chunk * per_chunk; }
  int32_t end(int32_t chunk) const { return std::min(groups, (chunk + 1) * per_chunk); }

 private:
  int32_t groups_for(int64_t cost_of_one, int64_t cost) const {
    return int32_t(std::min<int64_t>(groups, cost / std::max<int64_t>(1, cost_of_one)));
  }
};

inline int32_t matmul_chunks(const MatmulParams& p) {
  return MatmulChunks(p).count();
}

// Cache lines of the group to come that each block of a tile prefetches, so that memory is busy during all
// tiles of this group, not only the first. Nibbles below 8 rows do better with the hardware's prefetcher
// alone.
inline int32_t lines_ahead(const MatmulParams& p, const ActivationTiles& tiles, int64_t group_bytes) {
  const bool nibbles = p.w.layout == PackedLayout::kW4 || p.w.layout == PackedLayout::kW4F32;
  if (nibbles && tiles.m < 8) return 0;
  const int64_t slots = int64_t(tiles.n) * (p.w.k / 32) * 64;
  return int32_t((group_bytes + slots - 1) / slots);
}

template <class Set>
void quantised_matmul_run(const MatmulParams& p, int32_t chunk, const OpContext& context) {
  const MatmulChunks chunks(p);
  const ActivationTiles tiles(p.rows.size());
  const int32_t blocks = p.w.k / 32;
  const int64_t group_bytes = int64_t(packed_group_bytes(p.w.layout, p.w.k));
  const int32_t lines = lines_ahead(p, tiles, group_bytes);
  const auto& bodies = Set::kMatmul.quantised[int(p.w.layout) - int(PackedLayout::kW4)];
  for (int32_t g = chunks.begin(chunk); g < chunks.end(chunk); g++) {
    const std::byte* w = p.w.data + g * group_bytes;
    const int32_t next = g + 1 < chunks.end(chunk) ? g + 1 : chunks.begin(context.after(chunk));
    const std::byte* ahead = p.w.data + next * group_bytes;
    const int32_t ahead_lines = next < chunks.groups ? lines : 0;
    for (int32_t t = 0; t < tiles.n; t++) {
      const int32_t row = tiles.first(t);
      bodies[tiles.rows(t) - 1](w, p.x_q8 + int64_t(row) * blocks, blocks, p.y + row * p.ldy + 16 * g, p.ldy,
                                p.add, ahead, ahead_lines);
      ahead += int64_t(blocks) * ahead_lines * 64;
      if (p.x_q8_low && 16 * g >= p.low_begin)
        bodies[tiles.rows(t) - 1](w, p.x_q8_low + int64_t(row) * blocks, blocks, p.y + row * p.ldy + 16 * g,
                                  p.ldy, true, nullptr, 0);
    }
  }
}

template <class Set>
void float_matmul_run(const MatmulParams& p, int32_t chunk) {
  const MatmulChunks chunks(p);
  const ActivationTiles tiles(p.rows.size());
  const int64_t group_bytes = int64_t(packed_group_bytes(p.w.layout, p.w.k));
  const auto& bodies = Set::kMatmul.floats[int(p.w.layout)];
  for (int32_t g = chunks.begin(chunk); g < chunks.end(chunk); g++)
    for (int32_t t = 0; t < tiles.n; t++) {
      const int32_t row = tiles.first(t);
      bodies[tiles.rows(t) - 1](p.w.data + g * group_bytes, p.x_f32 + row * p.ldx, p.ldx, p.w.k,
                                p.y + row * p.ldy + 16 * g, p.ldy, p.add);
    }
}

template <class Set>
void matmul_run(const MatmulParams& p, int32_t chunk, OpContext& context) {
  if (p.w.quantised()) {
    quantised_matmul_run<Set>(p, chunk, context);
  } else {
    float_matmul_run<Set>(p, chunk);
  }
}

}  // namespace gapless::cpu
