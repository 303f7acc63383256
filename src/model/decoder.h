// What all decoder-only transformers share around their layers: embedding, rope tables, final norm and output
// head, and how they are loaded.
#pragma once

#include <memory>
#include <vector>

#include "model/layers.h"
#include "model/model.h"
#include "model/model_config.h"
#include "model/registry.h"

namespace gapless {

class DecoderModel : public Model {
 public:
  const ModelConfig& config() const override { return config_; }
  Status reserve(Device& device, int32_t max_rows) override;
  void logits(OpList& ops, const OpTable& table, const ForwardInputs& in, int32_t begin, int32_t cap,
              float* logits, int64_t ld) override;
  HiddenStates hidden_states(OpList& ops, const OpTable& table, const ForwardInputs& in) override;

 protected:
  // Reads the config and the norm's epsilon, plans embedding, output head and final norm, then the layers by
  // plan_layers(), loads all.
  Status load(const GgufFile& file, Device& device, const LoadOptions& options);
  // Checks the architecture's own keys, plans its layers and says its rope tables by add_rope().
  virtual Status plan_layers(const GgufFile& file, WeightPlan& plan) = 0;
  // Returns the index of the table in ropes(), which is filled when load() is done.
  int32_t add_rope(const RopeConfig& rope);
  const RopeTable& rope(int32_t index) const { return ropes_[size_t(index)]; }
  const std::vector<RopeTable>& ropes() const { return ropes_; }

  Step step(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) const;
  const PackedMatrix& embedding() const { return embedding_; }

 private:
  Status load_ropes(Device& device);
  // The final norm of some of the logit rows, as int8 for a quantised head or as float32.
  void push_output_norm(OpList& ops, const OpTable& table, const ForwardInputs& in, const Rows& rows,
                        bool q8);

  ModelConfig config_;
  float eps_ = 0;
  PackedMatrix embedding_, head_;
  std::string head_label_;
  bool tied_ = false;
  const float* output_norm_ = nullptr;
  std::vector<RopeConfig> rope_configs_;
  std::vector<RopeTable> ropes_;
  Workspace workspace_;
  Buffer weights_, frequencies_;
};

}  // namespace gapless
