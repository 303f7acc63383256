#include "kernels/reference/reference.h"

#include <cmath>

#include "kernels/numeric.h"
#include "kernels/op_work.h"

namespace gapless {
namespace {

// One chunk per row.
template <class P>
int32_t row_chunks(const P& p) {
  return p.rows.size();
}

float* scratch_floats(OpContext& context, int32_t n) {
  CHECK_LE(size_t(n) * sizeof(float), context.scratch.size());
  return reinterpret_cast<float*>(context.scratch.data());
}

void emit(const ActOut& out, const Rows& rows, int32_t row, const float* y) {
  if (out.f32)
    for (int32_t i = 0; i < out.dim; i++) out.f32[row * out.ld + i] = y[i];
  if (out.q8) {
    const auto place = ActivationTiles(rows.size()).place(row, out.dim / 32);
    for (int32_t b = 0; b < out.dim / 32; b++)
      quantise_block(y + 32 * b, out.q8[place.first + size_t(b) * place.stride]);
    for (int32_t b = 0; out.q8_low && b < out.dim / 32; b++) {
      const Q8Block& high = out.q8[place.first + size_t(b) * place.stride];
      float rest[32];
      for (int32_t j = 0; j < 32; j++) rest[j] = y[32 * b + j] - high.s * float(high.q[j]);
      quantise_block(rest, out.q8_low[place.first + size_t(b) * place.stride]);
    }
  }
}

void embed_row(const EmbedParams& p, int32_t i, OpContext&) {
  float* y = p.out + i * p.ld_out;
  dequantise_packed_row(p.table, p.ids[p.rows.begin + i], y);
  for (int32_t d = 0; d < p.table.k; d++) y[d] *= p.scale;
}

float norm_factor(const float* x, int32_t dim, float eps) {
  return 1.f / std::sqrt(numeric::dot(x, x, dim) / float(dim) + eps);
}

void rms_norm_row(const RmsNormParams& p, int32_t i, OpContext& context) {
  const int32_t row = p.gather ? p.gather[p.rows.begin + i] : p.rows.begin + i;
  const float* x = p.x + row * p.ldx;
  const float r = norm_factor(x, p.out.dim, p.eps);
  float* y = scratch_floats(context, p.out.dim);
  for (int32_t d = 0; d < p.out.dim; d++) y[d] = (x[d] * r) * (p.weight ? p.weight[d] : 1.f);
  if (p.residual) {
    for (int32_t d = 0; d < p.out.dim; d++) p.residual[row * p.ld_residual + d] += y[d];
  } else {
    emit(p.out, p.rows, i, y);
  }
}

float quantised_dot(const MatmulParams& p, const Q8Block* activations, int32_t row, int32_t column) {
  const int32_t blocks = p.w.k / 32;
  const auto place = ActivationTiles(p.rows.size()).place(row, blocks);
  float acc = 0;
  UnpackedBlock w;
  for (int32_t b = 0; b < blocks; b++) {
    const Q8Block& x = activations[place.first + size_t(b) * place.stride];
    read_packed_block(p.w, column, b, w);
    int32_t dot[2] = {};
    for (int i = 0; i < 32; i++) dot[i / 16] += w.q[i] * x.q[i];
    if (p.w.layout == PackedLayout::kW8Group16F32) {
      acc = numeric::fma(w.d[0] * x.s, float(dot[0]), acc);
      acc = numeric::fma(w.d[1] * x.s, float(dot[1]), acc);
    } else {
      acc = numeric::fma(w.d[0] * x.s, float(dot[0] + dot[1]), acc);
    }
    if (has_minimum(p.w.layout)) acc = numeric::fma(w.m, x.s_sum, acc);
  }
  return acc;
}

// Chunk = one group of 16 outputs, all rows.
int32_t matmul_chunks(const MatmulParams& p) {
  return p.rows.size() > 0 ? p.w.groups() : 0;
}

void matmul_group(const MatmulParams& p, int32_t group, OpContext& context) {
  float* w = scratch_floats(context, p.w.k);
  for (int32_t column = 16 * group; column < 16 * group + 16; column++) {
    if (!p.w.quantised()) dequantise_packed_row(p.w, column, w);
    for (int32_t i = 0; i < p.rows.size(); i++) {
      float acc = 0;
      if (p.w.quantised()) {
        acc = quantised_dot(p, p.x_q8, i, column);
      } else {
        for (int32_t k = 0; k < p.w.k; k++) acc = numeric::fma(w[k], p.x_f32[i * p.ldx + k], acc);
      }
      float& y = p.y[i * p.ldy + column];
      y = p.add ? y + acc : acc;
      if (p.w.quantised() && p.x_q8_low && column >= p.low_begin)
        y += quantised_dot(p, p.x_q8_low, i, column);
    }
  }
}

void rope_table_row(const RopeTableParams& p, int32_t i, OpContext&) {
  for (int32_t j = 0; j < p.half; j++) {
    const double angle = double(p.positions[p.rows.begin + i]) * p.inv_freq[j];
    p.out[(int64_t(i) * p.half + j) * 2] = float(std::cos(angle));
    p.out[(int64_t(i) * p.half + j) * 2 + 1] = float(std::sin(angle));
  }
}

void norm_and_rope(const RopeKvParams& p, const float* weight, const float* cos_sin, float* head) {
  if (weight) {
    const float r = norm_factor(head, p.kv.head_dim, p.eps);
    for (int32_t d = 0; d < p.kv.head_dim; d++) head[d] = (head[d] * r) * weight[d];
  }
  for (int32_t j = 0; j < p.rope_half; j++) {
    const bool halves = p.style == RopeStyle::kHalves;
    float& a = head[halves ? j : 2 * j];
    float& b = head[halves ? j + p.rope_half : 2 * j + 1];
    const float cos = cos_sin[2 * j], sin = cos_sin[2 * j + 1], a0 = a, b0 = b;
    a = numeric::fma(a0, cos, -(b0 * sin));
    b = numeric::fma(b0, cos, a0 * sin);
  }
}

// A row of K or V: element d goes to to[d * stride].
void store_kv(KvDtype dtype, const float* x, int32_t n, int64_t stride, std::byte* to, std::byte* scale_at) {
  if (dtype == KvDtype::kI8) {
    int8_t q[kMaxHeadDim];
    *reinterpret_cast<float*>(scale_at) = quantise_row(x, n, q);
    for (int32_t d = 0; d < n; d++) to[d * stride] = std::byte(q[d]);
    return;
  }
  const auto round = dtype == KvDtype::kF16 ? numeric::f32_to_f16 : numeric::f32_to_bf16;
  for (int32_t d = 0; d < n; d++) reinterpret_cast<uint16_t*>(to)[d * stride] = round(x[d]);
}

void rope_kv_row(const RopeKvParams& p, int32_t i, OpContext&) {
  const KvLayer& kv = p.kv;
  const int32_t position = p.positions[p.rows.begin + i], slot = p.slots[p.rows.begin + i], dim = kv.head_dim,
                offset = position % kv.page_size, bytes = kv_element_bytes(kv.dtype);
  const float* cos_sin = p.cos_sin + int64_t(i) * 2 * p.rope_half;
  float* q = p.qkv + i * p.ld;
  float* k = q + int64_t(p.n_heads) * dim;
  const float* v = k + int64_t(kv.n_kv_heads) * dim;
  for (int32_t h = 0; h < p.n_heads; h++) norm_and_rope(p, p.q_norm, cos_sin, q + int64_t(h) * dim);
  for (int32_t h = 0; h < kv.n_kv_heads; h++, k += dim, v += dim) {
    norm_and_rope(p, p.k_norm, cos_sin, k);
    const int64_t at = kv.page_begin(slot, h, position), scale_at = at + kv.scale_at(offset);
    store_kv(kv.dtype, k, dim, k_lanes(kv.page_size),
             kv.k + at + k_element(kv.page_size, dim, offset, 0) * bytes, kv.k + scale_at);
    store_kv(kv.dtype, v, dim, 1, kv.v + at + int64_t(offset) * dim * bytes, kv.v + scale_at);
  }
}

void gated_activation_row(const GatedActivationParams& p, int32_t i, OpContext& context) {
  const float* gate = p.gate_up + i * p.ld;
  const float* up = gate + p.up_offset;
  float* y = scratch_floats(context, p.out.dim);
  for (int32_t d = 0; d < p.out.dim; d++)
    y[d] = (p.activation == Activation::kSilu ? numeric::silu(gate[d]) : numeric::gelu_tanh(gate[d])) * up[d];
  emit(p.out, p.rows, i, y);
}

}  // namespace

const OpTable& reference_op_table() {
  static constexpr OpTable kTable = {
      "reference",
      [](OpList& ops, const EmbedParams& p) {
        ops.push<row_chunks<EmbedParams>, embed_row, embed_work>("embed", p);
      },
      [](OpList& ops, const RmsNormParams& p) {
        ops.push<row_chunks<RmsNormParams>, rms_norm_row, rms_norm_work>("rms_norm", p);
      },
      [](OpList& ops, const MatmulParams& p) {
        ops.push<matmul_chunks, matmul_group, matmul_work>("matmul", p, p.label);
      },
      [](OpList& ops, const RopeTableParams& p) {
        ops.push<row_chunks<RopeTableParams>, rope_table_row, rope_table_work>("rope_table", p);
      },
      [](OpList& ops, const RopeKvParams& p) {
        ops.push<row_chunks<RopeKvParams>, rope_kv_row, rope_kv_work>("rope_kv", p);
      },
      reference_attention,
      [](OpList& ops, const GatedActivationParams& p) {
        ops.push<row_chunks<GatedActivationParams>, gated_activation_row, gated_activation_work>(
            "gated_activation", p);
      }};
  return kTable;
}

}  // namespace gapless
