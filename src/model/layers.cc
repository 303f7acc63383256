#include "model/layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/row_stride.h"

namespace gapless {
namespace {

constexpr size_t kAlignment = 64;

// AttentionSplit has room for 4 rows at the model's whole context, or at 131072; memory is committed when a
// row needs it.
int64_t split_floats(const ModelConfig& c) {
  return attention_split_floats(4, std::min(c.context_length, 1 << 17), c.n_heads, c.head_dim);
}

int64_t padded(int64_t n) {
  return (n + 15) / 16 * 16;
}

// Where the op before `reader` puts its output.
ActOut act_for(const Workspace& memory, const Linear& reader, int32_t dim) {
  return {.f32 = reader.reads_f32() ? memory.act_f32 : nullptr,
          .ld = memory.ld_act,
          .q8 = reader.reads_q8() ? memory.act_q8 : nullptr,
          .dim = dim,
          .q8_low = reader.reads_low() ? memory.act_q8_low : nullptr};
}

void push_norm(const Step& step, const float* weight, const Linear& reader) {
  step.table.rms_norm(step.ops, {.rows = step.rows(),
                                 .gather = nullptr,
                                 .x = step.memory.x,
                                 .ldx = step.memory.ld_x,
                                 .weight = weight,
                                 .eps = step.eps,
                                 .out = act_for(step.memory, reader, step.config.dim),
                                 .residual = nullptr,
                                 .ld_residual = 0});
}

}  // namespace

Status plan_attention(WeightPlan& plan, const ModelConfig& c, int32_t layer, AttentionWeights& out) {
  const std::string blk = fmt::format("blk.{}.", layer);
  const int32_t q = c.n_heads * c.head_dim, kv = c.n_kv_heads * c.head_dim;
  const WeightPlan::TensorRows qkv[] = {
      {blk + "attn_q.weight", q}, {blk + "attn_k.weight", kv, true}, {blk + "attn_v.weight", kv, true}};
  const WeightPlan::TensorRows output[] = {{blk + "attn_output.weight", c.dim}};
  RETURN_IF_ERROR(plan.vector(out.norm, blk + "attn_norm.weight", c.dim));
  RETURN_IF_ERROR(plan.linear(out.qkv, qkv, c.dim));
  RETURN_IF_ERROR(plan.linear(out.output, output, q));
  if (out.output.reads_q8() && q / c.n_kv_heads % 32 != 0) {
    return Status::invalid("{}: {} query elements per KV head, expected a multiple of 32", plan.file_name(),
                           q / c.n_kv_heads);
  }
  return {};
}

Status plan_feed_forward(WeightPlan& plan, const ModelConfig& c, int32_t layer, FeedForwardWeights& out) {
  const std::string blk = fmt::format("blk.{}.", layer);
  const bool outer = layer == 0 || layer == c.n_layers - 1;
  const WeightPlan::TensorRows gate_up[] = {{blk + "ffn_gate.weight", c.ffn_dim, outer},
                                            {blk + "ffn_up.weight", c.ffn_dim, outer}};
  const WeightPlan::TensorRows down[] = {{blk + "ffn_down.weight", c.dim, outer}};
  RETURN_IF_ERROR(plan.vector(out.norm, blk + "ffn_norm.weight", c.dim));
  RETURN_IF_ERROR(plan.linear(out.gate_up, gate_up, c.dim));
  return plan.linear(out.down, down, c.ffn_dim);
}

Status Workspace::reserve(Device& device, const ModelConfig& c, std::span<const int32_t> rope_halves,
                          int32_t rows) {
  CHECK_GT(rows, 0);
  const int64_t q = int64_t(c.n_heads) * c.head_dim, qkv = q + 2 * int64_t(c.n_kv_heads) * c.head_dim;
  const int64_t act = std::max<int64_t>({q, c.dim, c.ffn_dim});
  ld_x = row_stride(c.dim);
  ld_act = row_stride(act);
  ld_wide = row_stride(std::max<int64_t>({qkv, 2 * padded(c.ffn_dim), padded(c.dim)}));

  size_t bytes = 0;
  const auto place = [&](int64_t elements, size_t size) {
    const size_t at = bytes;
    bytes += (size_t(elements) * size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  const size_t at_x = place(rows * ld_x, sizeof(float));
  const size_t at_f32 = place(rows * ld_act, sizeof(float));
  const size_t at_q8 = place(rows * ((act + 31) / 32), sizeof(Q8Block));
  const size_t at_q8_low = place(rows * ((act + 31) / 32), sizeof(Q8Block));
  const size_t at_wide = place(rows * ld_wide, sizeof(float));
  const size_t at_partials = place(split_floats(c), sizeof(float));
  const size_t at_arrived = place(kAttentionChunks, sizeof(int32_t));
  std::vector<size_t> at_ropes;
  for (const int32_t half : rope_halves) at_ropes.push_back(place(int64_t(rows) * 2 * half, sizeof(float)));

  ASSIGN_OR_RETURN(memory_, device.allocate(bytes, MemoryKind::kDevice));
  auto* base = memory_.as<std::byte>();
  x = reinterpret_cast<float*>(base + at_x);
  act_f32 = reinterpret_cast<float*>(base + at_f32);
  act_q8 = reinterpret_cast<Q8Block*>(base + at_q8);
  act_q8_low = reinterpret_cast<Q8Block*>(base + at_q8_low);
  wide = reinterpret_cast<float*>(base + at_wide);
  cos_sin.clear();
  for (const size_t at : at_ropes) cos_sin.push_back(reinterpret_cast<float*>(base + at));
  split = {.chunks = kAttentionChunks,
           .partials = reinterpret_cast<float*>(base + at_partials),
           .capacity = split_floats(c),
           .arrived = reinterpret_cast<int32_t*>(base + at_arrived)};
  max_rows = rows;
  return {};
}

void push_embed(const Step& step, const PackedMatrix& embedding, float scale) {
  step.table.embed(step.ops, {.rows = step.rows(),
                              .ids = step.in.ids,
                              .table = embedding,
                              .scale = scale,
                              .out = step.memory.x,
                              .ld_out = step.memory.ld_x});
}

void push_rope_table(const Step& step, const RopeTable& rope) {
  step.table.rope_table(step.ops, {.rows = step.rows(),
                                   .positions = step.in.positions,
                                   .inv_freq = rope.inv_freq,
                                   .half = rope.half,
                                   .out = step.memory.cos_sin[size_t(rope.index)]});
}

void push_linear(const Step& step, const Linear& w, float* y, int64_t ldy, bool add) {
  for (const Linear::Part& part : w.parts) {
    step.table.matmul(step.ops,
                      {.rows = step.rows(),
                       .x_f32 = step.memory.act_f32,
                       .ldx = step.memory.ld_act,
                       .x_q8 = step.memory.act_q8,
                       .w = part.w,
                       .y = y + part.column,
                       .ldy = ldy,
                       .add = add,
                       .x_q8_low = part.low_begin != Linear::kNoLow ? step.memory.act_q8_low : nullptr,
                       .low_begin = part.low_begin,
                       .label = part.label.c_str()});
  }
}

void push_attention(const Step& step, int32_t layer, const AttentionWeights& w, const AttentionStyle& style) {
  const ModelConfig& c = step.config;
  const KvLayer kv = step.kv.layer(layer, c);
  push_norm(step, w.norm, w.qkv);
  push_linear(step, w.qkv, step.memory.wide, step.memory.ld_wide, false);
  step.table.rope_kv(step.ops, {.rows = step.rows(),
                                .qkv = step.memory.wide,
                                .ld = step.memory.ld_wide,
                                .n_heads = c.n_heads,
                                .positions = step.in.positions,
                                .slots = step.in.slots,
                                .q_norm = w.q_norm,
                                .k_norm = w.k_norm,
                                .eps = step.eps,
                                .style = style.rope_style,
                                .rope_half = style.rope.half,
                                .cos_sin = step.memory.cos_sin[size_t(style.rope.index)],
                                .kv = kv});
  step.table.attention(step.ops, {.rows = step.rows(),
                                  .tiles = step.in.tiles,
                                  .n_tiles = step.in.n_tiles,
                                  .max_tiles = step.in.max_tiles,
                                  .q = step.memory.wide,
                                  .ldq = step.memory.ld_wide,
                                  .n_heads = c.n_heads,
                                  .scale = style.scale,
                                  .window = style.window,
                                  .kv = kv,
                                  .out = act_for(step.memory, w.output, c.n_heads * c.head_dim),
                                  .split = step.memory.split});
}

void push_feed_forward(const Step& step, const FeedForwardWeights& w, Activation activation) {
  push_norm(step, w.norm, w.gate_up);
  push_linear(step, w.gate_up, step.memory.wide, step.memory.ld_wide, false);
  step.table.gated_activation(step.ops, {.rows = step.rows(),
                                         .gate_up = step.memory.wide,
                                         .ld = step.memory.ld_wide,
                                         .up_offset = w.gate_up.columns[1],
                                         .activation = activation,
                                         .out = act_for(step.memory, w.down, step.config.ffn_dim)});
}

void push_post_norm(const Step& step, const float* weight) {
  step.table.rms_norm(step.ops, {.rows = step.rows(),
                                 .gather = nullptr,
                                 .x = step.memory.wide,
                                 .ldx = step.memory.ld_wide,
                                 .weight = weight,
                                 .eps = step.eps,
                                 .out = {.dim = step.config.dim},
                                 .residual = step.memory.x,
                                 .ld_residual = step.memory.ld_x});
}

}  // namespace gapless
