#include "apps/roof_share.h"

#include <algorithm>

namespace gapless {

namespace {

// Weights that are not quantised are multiplied as floats.
bool is_float(const ModelSummary& model) {
  const std::string& most = model.types.front().dtype;
  return most == "F32" || most == "F16" || most == "BF16";
}

}  // namespace

RoofShare::RoofShare(const ModelSummary& model, KvDtype kv_dtype, const Roof& roof) : roof_(roof) {
  const ModelConfig& c = model.config;
  const double table = double(c.vocab_size) * c.dim;
  const double other_table =
      model.tied_embeddings ? 0 : table;  // looked up, one row per token, never multiplied
  layer_ops_ = 2 * (double(c.n_params) - table - other_table);
  head_ops_ = 2 * table;
  const double table_share = other_table / double(c.n_params);
  step_bytes_ = double(model.weight_bytes) * (1 - table_share);
  kv_bytes_ = double(c.kv_bytes_per_token(kv_dtype));
  ops_per_second_ = 1e9 * (is_float(model) ? roof.f32_gflops : roof.int8_gops);
  bytes_per_second_ = 1e9 * roof.read_gbps;
}

double RoofShare::prefill(double tokens_per_second) const {
  return tokens_per_second * layer_ops_ / ops_per_second_;
}

double RoofShare::decode(double tokens_per_second, int batch, double context) const {
  const double arithmetic = batch * (layer_ops_ + head_ops_) / ops_per_second_;
  const double reading = (step_bytes_ + batch * context * kv_bytes_) / bytes_per_second_;
  return std::max(arithmetic, reading) * tokens_per_second / batch;
}

}  // namespace gapless
