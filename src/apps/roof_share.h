// How near a speed is to what the machine could do at most for this model.
#pragma once

#include <cstdint>

#include "kernels/roof.h"
#include "model/inspect.h"

namespace gapless {

// A step cannot be shorter than reading every weight once, and the KV cache of its rows, takes at the
// measured bandwidth, nor than its multiplications take at the measured peak: the longer of both is the roof.
// Attention's own arithmetic is not counted, so the share is a little too low for long contexts.
class RoofShare {
 public:
  RoofShare(const ModelSummary& model, KvDtype kv_dtype, const Roof& roof);

  // All layers for every token; the output head only counts once per prompt, which is nothing.
  double prefill(double tokens_per_second) const;
  // `batch` rows per step with `context` tokens each in the cache.
  double decode(double tokens_per_second, int batch, double context) const;
  const Roof& roof() const { return roof_; }

 private:
  Roof roof_;
  double layer_ops_, head_ops_;   // per token
  double step_bytes_, kv_bytes_;  // weights per step; cache per token of context
  double ops_per_second_, bytes_per_second_;
};

}  // namespace gapless
