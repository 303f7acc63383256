// Gemma 3 (arXiv 2503.19786): like Llama, and: embeddings scaled by sqrt(dim), norms of each q and k head, a
// norm after each sublayer, a sliding window in five layers of six, a rope base for either kind, GELU, and
// the embedding table as output head. Norm weights in GGUF files already have Gemma's "+ 1" added. Constants
// that files leave out are those of llama.cpp.
#include "model/gemma3.h"

#include <cmath>

#include "model/decoder.h"

namespace gapless {
namespace {

constexpr int32_t kWindowPattern = 6;     // every sixth layer sees everything
constexpr float kWindowRopeBase = 10000;  // of layers with a window
constexpr int32_t kLayersOf27B = 62;      // the size that scales q . k by dim / heads instead of head_dim

struct Gemma3Layer {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
  const float* attention_post_norm = nullptr;
  const float* feed_forward_post_norm = nullptr;
  bool windowed = false;
};

class Gemma3Model final : public DecoderModel {
 public:
  using DecoderModel::load;
  void forward(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) override;

 private:
  Status plan_layers(const GgufFile& file, WeightPlan& plan) override;
  Status plan_layer(WeightPlan& plan, int32_t index);
  Status read_keys(const GgufFile& file);

  std::vector<Gemma3Layer> layers_;
  int32_t window_ = 0;
  float attention_scale_ = 0;
  int32_t global_rope_ = 0, window_rope_ = 0;
};

Status Gemma3Model::read_keys(const GgufFile& file) {
  const ArchKeys keys(file, config().architecture);
  if (keys.has("final_logit_softcapping")) {
    return Status::invalid("{}: metadata key '{}' is set; logit softcapping is not supported", file.name(),
                           keys.full("final_logit_softcapping"));
  }
  ASSIGN_OR_RETURN(window_, keys.get_int_or("attention.sliding_window", 0, 0, 1 << 30));
  ASSIGN_OR_RETURN(const int32_t pattern,
                   keys.get_int_or("attention.sliding_window_pattern", kWindowPattern, 1, 1024));
  layers_.resize(size_t(config().n_layers));
  for (int32_t l = 0; l < config().n_layers; ++l)
    layers_[size_t(l)].windowed = window_ > 0 && l % pattern < pattern - 1;

  ASSIGN_OR_RETURN(RopeConfig rope, read_rope_config(file, config()));
  global_rope_ = add_rope(rope);
  rope.scale = 1;
  ASSIGN_OR_RETURN(rope.base, keys.get_positive_or("rope.freq_base_swa", kWindowRopeBase));
  window_rope_ = add_rope(rope);
  const int32_t scaled_by =
      config().n_layers == kLayersOf27B ? config().dim / config().n_heads : config().head_dim;
  attention_scale_ = 1 / std::sqrt(float(scaled_by));
  return {};
}

Status Gemma3Model::plan_layer(WeightPlan& plan, int32_t index) {
  Gemma3Layer& layer = layers_[size_t(index)];
  const std::string blk = fmt::format("blk.{}.", index);
  RETURN_IF_ERROR(plan_attention(plan, config(), index, layer.attention));
  RETURN_IF_ERROR(plan.vector(layer.attention.q_norm, blk + "attn_q_norm.weight", config().head_dim));
  RETURN_IF_ERROR(plan.vector(layer.attention.k_norm, blk + "attn_k_norm.weight", config().head_dim));
  RETURN_IF_ERROR(plan.vector(layer.attention_post_norm, blk + "post_attention_norm.weight", config().dim));
  RETURN_IF_ERROR(plan_feed_forward(plan, config(), index, layer.feed_forward));
  return plan.vector(layer.feed_forward_post_norm, blk + "post_ffw_norm.weight", config().dim);
}

Status Gemma3Model::plan_layers(const GgufFile& file, WeightPlan& plan) {
  RETURN_IF_ERROR(read_keys(file));
  for (int32_t l = 0; l < config().n_layers; ++l) RETURN_IF_ERROR(plan_layer(plan, l));
  return {};
}

void Gemma3Model::forward(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) {
  const Step s = step(ops, table, in, kv);
  const AttentionStyle global{RopeStyle::kHalves, rope(global_rope_), attention_scale_, 0};
  const AttentionStyle windowed{RopeStyle::kHalves, rope(window_rope_), attention_scale_, window_};
  push_embed(s, embedding(), std::sqrt(float(config().dim)));
  for (const RopeTable& table_of : ropes()) push_rope_table(s, table_of);
  for (int32_t l = 0; l < config().n_layers; ++l) {
    const Gemma3Layer& layer = layers_[size_t(l)];
    push_attention(s, l, layer.attention, layer.windowed ? windowed : global);
    push_linear(s, layer.attention.output, s.memory.wide, s.memory.ld_wide, false);
    push_post_norm(s, layer.attention_post_norm);
    push_feed_forward(s, layer.feed_forward, Activation::kGeluTanh);
    push_linear(s, layer.feed_forward.down, s.memory.wide, s.memory.ld_wide, false);
    push_post_norm(s, layer.feed_forward_post_norm);
  }
}

}  // namespace

Result<std::unique_ptr<Model>> load_gemma3(const GgufFile& file, Device& device, const LoadOptions& options) {
  auto model = std::make_unique<Gemma3Model>();
  RETURN_IF_ERROR(model->load(file, device, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace gapless
