// The pieces that decoder-only transformers are made of. Each function appends operations to a step; a
// model's forward() is a list of these calls.
//
// The rows of a step live in three places (Workspace): `x` is the residual stream, `act` what the next matmul
// reads, `wide` the output of a matmul that another op works on (q|k|v, gate|up, or a sublayer's output
// before its post norm). A piece says which it reads and writes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/weights.h"

namespace gapless {

struct AttentionWeights {
  const float* norm = nullptr;
  Linear qkv, output;
  const float* q_norm = nullptr;  // null: none
  const float* k_norm = nullptr;
};

struct FeedForwardWeights {
  const float* norm = nullptr;
  Linear gate_up, down;
};

// Activations are rounded to int8 in blocks of 32. Where that noise matters most for its price, matmuls read
// 15 bits (ActOut::q8_low): attn_k and attn_v of every layer, the feed-forward of the first and the last
// layer. Mean |difference| of prompt log probabilities against float32, on SmolLM2 135M Q4_1 and Gemma 3 270M
// Q4_K_M: all int8 0.064 and 0.055; with attn_v and the last feed-forward 0.050 and 0.045; and attn_k and the
// first feed-forward 0.045 and 0.042, for 3 % more arithmetic. The output head would give 0.009 more, but
// doubles its time, an eighth of a step of 32 rows. With all weights in float32 it is 0.001.

// Plans blk.<layer>.attn_{norm,q,k,v,output}.weight and blk.<layer>.ffn_{norm,gate,up,down}.weight.
Status plan_attention(WeightPlan& plan, const ModelConfig& config, int32_t layer, AttentionWeights& out);
Status plan_feed_forward(WeightPlan& plan, const ModelConfig& config, int32_t layer, FeedForwardWeights& out);

// Scratch memory of a model, for steps of at most max_rows rows. Steps of a stream run one after the other,
// so all share it.
class Workspace {
 public:
  // rope_halves: pairs of each rope table.
  Status reserve(Device& device, const ModelConfig& config, std::span<const int32_t> rope_halves,
                 int32_t max_rows);

  int32_t max_rows = 0;
  float* x = nullptr;
  int64_t ld_x = 0;
  float* act_f32 = nullptr;
  int64_t ld_act = 0;
  Q8Block* act_q8 = nullptr;
  Q8Block* act_q8_low = nullptr;
  float* wide = nullptr;
  int64_t ld_wide = 0;
  std::vector<float*> cos_sin;  // of each rope table
  AttentionSplit split;

 private:
  Buffer memory_;
};

// What every piece needs to append to a step. References live as long as the call.
struct Step {
  OpList& ops;
  const OpTable& table;
  const ForwardInputs& in;
  const KvView& kv;
  const ModelConfig& config;
  const Workspace& memory;
  float eps;

  Rows rows() const { return {in.n_rows, 0, in.max_rows}; }
};

// A table of rotation angles per position, and which of a workspace's cos_sin it fills.
struct RopeTable {
  const double* inv_freq = nullptr;
  int32_t half = 0;
  int32_t index = 0;
};

struct AttentionStyle {
  RopeStyle rope_style;
  RopeTable rope;
  float scale;     // of q . k
  int32_t window;  // 0: all positions
};

// x = scale * embedding rows of the step's ids.
void push_embed(const Step& step, const PackedMatrix& embedding, float scale);
void push_rope_table(const Step& step, const RopeTable& rope);
// y = W act, or y += W act.
void push_linear(const Step& step, const Linear& w, float* y, int64_t ldy, bool add);
// x -> act: norm, q|k|v, rope and KV write, attention. w.output reads act next.
void push_attention(const Step& step, int32_t layer, const AttentionWeights& w, const AttentionStyle& style);
// x -> act: norm, gate|up, activation(gate) * up. w.down reads act next.
void push_feed_forward(const Step& step, const FeedForwardWeights& w, Activation activation);
// x += norm(wide): the post norms of Gemma.
void push_post_norm(const Step& step, const float* weight);

}  // namespace gapless
