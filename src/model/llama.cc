#include "model/llama.h"

#include <cmath>

#include "model/decoder.h"

namespace gapless {
namespace {

struct LlamaLayer {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
};

class LlamaModel final : public DecoderModel {
 public:
  using DecoderModel::load;
  void forward(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) override;

 private:
  Status plan_layers(const GgufFile& file, WeightPlan& plan) override;
  Status plan_rope(const GgufFile& file, WeightPlan& plan);

  std::vector<LlamaLayer> layers_;
  int32_t rope_ = 0;
};

Status LlamaModel::plan_layers(const GgufFile& file, WeightPlan& plan) {
  const ArchKeys keys(file, config().architecture);
  ASSIGN_OR_RETURN(const int32_t experts, keys.get_int_or("expert_count", 0, 0, 1 << 16));
  if (experts > 0)
    return Status::invalid("{}: mixture of {} experts; only dense Llama models are supported", file.name(),
                           experts);
  RETURN_IF_ERROR(plan_rope(file, plan));
  layers_.resize(size_t(config().n_layers));
  for (int32_t l = 0; l < config().n_layers; ++l) {
    RETURN_IF_ERROR(plan_attention(plan, config(), l, layers_[size_t(l)].attention));
    RETURN_IF_ERROR(plan_feed_forward(plan, config(), l, layers_[size_t(l)].feed_forward));
  }
  return {};
}

// Llama 3.1's scaling reaches the file as one divisor per pair, computed by the converter.
Status LlamaModel::plan_rope(const GgufFile& file, WeightPlan& plan) {
  ASSIGN_OR_RETURN(RopeConfig rope, read_rope_config(file, config()));
  if (plan.has("rope_freqs.weight")) {
    ASSIGN_OR_RETURN(rope.divisors, plan.read_vector("rope_freqs.weight", rope.rotated / 2));
    for (const float divisor : rope.divisors) {
      if (!(divisor > 0) || !std::isfinite(divisor)) {
        return Status::invalid("{}: tensor 'rope_freqs.weight' contains {}, expected more than 0",
                               file.name(), divisor);
      }
    }
  }
  rope_ = add_rope(rope);
  return {};
}

void LlamaModel::forward(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) {
  const Step s = step(ops, table, in, kv);
  const AttentionStyle style{RopeStyle::kInterleaved, rope(rope_), 1 / std::sqrt(float(config().head_dim)),
                             0};
  push_embed(s, embedding(), 1);
  push_rope_table(s, rope(rope_));
  for (int32_t l = 0; l < config().n_layers; ++l) {
    const LlamaLayer& layer = layers_[size_t(l)];
    push_attention(s, l, layer.attention, style);
    push_linear(s, layer.attention.output, s.memory.x, s.memory.ld_x, true);
    push_feed_forward(s, layer.feed_forward, Activation::kSilu);
    push_linear(s, layer.feed_forward.down, s.memory.x, s.memory.ld_x, true);
  }
}

}  // namespace

Result<std::unique_ptr<Model>> load_llama(const GgufFile& file, Device& device, const LoadOptions& options) {
  auto model = std::make_unique<LlamaModel>();
  RETURN_IF_ERROR(model->load(file, device, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace gapless
