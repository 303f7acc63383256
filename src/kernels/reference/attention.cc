#include <algorithm>

#include "kernels/numeric.h"
#include "kernels/op_work.h"
#include "kernels/reference/reference.h"

namespace gapless {
namespace {

// Element `index` behind `page`, without its scale.
float kv_to_f32(KvDtype dtype, const std::byte* page, int64_t index) {
  if (dtype == KvDtype::kI8) return float(reinterpret_cast<const int8_t*>(page)[index]);
  const uint16_t x = reinterpret_cast<const uint16_t*>(page)[index];
  return dtype == KvDtype::kF16 ? numeric::f16_to_f32(x) : numeric::bf16_to_f32(x);
}

struct Partial {
  float m = 0, l = 0;
  float o[kMaxHeadDim] = {};
};

float k_at(const KvLayer& kv, int32_t slot, int32_t kv_head, int32_t position, int32_t d) {
  return kv_to_f32(kv.dtype, kv.k + kv.page_begin(slot, kv_head, position),
                   k_element(kv.page_size, kv.head_dim, position % kv.page_size, d));
}
float v_at(const KvLayer& kv, int32_t slot, int32_t kv_head, int32_t position, int32_t d) {
  return kv_to_f32(kv.dtype, kv.v + kv.page_begin(slot, kv_head, position),
                   int64_t(position % kv.page_size) * kv.head_dim + d);
}
// x times the scale of a row, if there is one; `base` is kv.k or kv.v.
float scaled(const KvLayer& kv, const std::byte* base, int32_t slot, int32_t kv_head, int32_t position,
             float x) {
  if (kv.dtype != KvDtype::kI8) return x;
  const std::byte* at = base + kv.page_begin(slot, kv_head, position) + kv.scale_at(position % kv.page_size);
  return x * *reinterpret_cast<const float*>(at);
}

// Positions first .. last, all in one KV block.
Partial block_partial(const AttentionParams& p, const float* q, int32_t slot, int32_t kv_head, int32_t first,
                      int32_t last) {
  float s[kKvBlock] = {};
  for (int32_t j = first; j <= last; j++) {
    float dot = 0;
    for (int32_t d = 0; d < p.kv.head_dim; d++)
      dot = numeric::fma(q[d], k_at(p.kv, slot, kv_head, j, d), dot);
    s[j - first] = scaled(p.kv, p.kv.k, slot, kv_head, j, p.scale) * dot;
  }
  Partial out;
  out.m = s[0];
  for (int32_t j = first; j <= last; j++) out.m = numeric::max(out.m, s[j - first]);
  float lanes[16] = {};
  for (int32_t j = first; j <= last; j++) {
    const float weight = numeric::exp(s[j - first] - out.m);
    lanes[j % 16] += weight;
    const float factor = scaled(p.kv, p.kv.v, slot, kv_head, j, weight);
    for (int32_t d = 0; d < p.kv.head_dim; d++)
      out.o[d] = numeric::fma(factor, v_at(p.kv, slot, kv_head, j, d), out.o[d]);
  }
  out.l = numeric::tree_sum(lanes);
  return out;
}

void combine(Partial& state, const Partial& block, int32_t head_dim) {
  const float m = numeric::max(state.m, block.m);
  const float c = numeric::exp(state.m - m), c_b = numeric::exp(block.m - m);
  state.m = m;
  state.l = numeric::fma(state.l, c, block.l * c_b);
  for (int32_t d = 0; d < head_dim; d++) state.o[d] = numeric::fma(state.o[d], c, block.o[d] * c_b);
}

void attend(const AttentionParams& p, int32_t slot, int32_t row, int32_t position, int32_t head, float* out) {
  const int32_t kv_head = head / (p.n_heads / p.kv.n_kv_heads);
  const float* q = p.q + row * p.ldq + int64_t(head) * p.kv.head_dim;
  const int32_t begin = p.window > 0 ? std::max(0, position - p.window + 1) : 0;
  Partial state;
  for (int32_t first = begin; first <= position; first = (first / kKvBlock + 1) * kKvBlock) {
    const int32_t last = std::min(position, first / kKvBlock * kKvBlock + kKvBlock - 1);
    const Partial block = block_partial(p, q, slot, kv_head, first, last);
    if (first == begin) {
      state = block;
    } else {
      combine(state, block, p.kv.head_dim);
    }
  }
  for (int32_t d = 0; d < p.kv.head_dim; d++) out[d] = state.o[d] / state.l;
}

// Chunk = tile.
int32_t attention_chunks(const AttentionParams& p) {
  return *p.n_tiles;
}

void attention_tile(const AttentionParams& p, int32_t chunk, OpContext& context) {
  const AttentionTile& tile = p.tiles[chunk];
  CHECK_LE(size_t(p.out.dim) * sizeof(float), context.scratch.size());
  float* y = reinterpret_cast<float*>(context.scratch.data());
  for (int32_t i = 0; i < tile.rows; i++) {
    const int32_t row = tile.row_begin + i;
    for (int32_t h = 0; h < p.n_heads; h++)
      attend(p, tile.slot, row, tile.pos_begin + i, h, y + int64_t(h) * p.kv.head_dim);
    if (p.out.f32) std::copy(y, y + p.out.dim, p.out.f32 + row * p.out.ld);
    if (!p.out.q8) continue;
    const auto place = ActivationTiles(p.rows.size()).place(row, p.out.dim / 32);
    for (int32_t b = 0; b < p.out.dim / 32; b++)
      quantise_block(y + 32 * b, p.out.q8[place.first + size_t(b) * place.stride]);
  }
}

}  // namespace

void reference_attention(OpList& ops, const AttentionParams& params) {
  ops.push<attention_chunks, attention_tile, attention_work>("attention", params);
}

}  // namespace gapless
