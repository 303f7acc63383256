#include "model/model_config.h"

#include <cmath>
#include <map>

namespace gapless {
namespace {

// Bounds on sizes: far above any model, low enough that products of two fit into 64 bits and a row fits into
// an op's scratch memory.
constexpr int32_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxGroup = 64, kMaxWidth = kMaxActDim,
                  kMaxVocab = 1 << 24;

Status read_heads(const ArchKeys& keys, const GgufFile& file, ModelConfig& c) {
  ASSIGN_OR_RETURN(c.n_heads, keys.get_int("attention.head_count", 1, kMaxHeads));
  ASSIGN_OR_RETURN(c.n_kv_heads, keys.get_int_or("attention.head_count_kv", c.n_heads, 1, kMaxHeads));
  if (c.n_heads % c.n_kv_heads != 0) {
    return Status::invalid("{}: {} attention heads are not a multiple of {} KV heads", file.name(), c.n_heads,
                           c.n_kv_heads);
  }
  if (c.n_heads / c.n_kv_heads > kMaxGroup) {
    return Status::invalid("{}: {} attention heads share a KV head, limit {}", file.name(),
                           c.n_heads / c.n_kv_heads, int32_t(kMaxGroup));
  }
  ASSIGN_OR_RETURN(c.head_dim, keys.get_int_or("attention.key_length", c.dim / c.n_heads, 1, kMaxHeadDim));
  ASSIGN_OR_RETURN(const int32_t value_length,
                   keys.get_int_or("attention.value_length", c.head_dim, 1, kMaxHeadDim));
  if (value_length != c.head_dim) {
    return Status::invalid("{}: keys of {} and values of {} elements; only equal lengths are supported",
                           file.name(), c.head_dim, value_length);
  }
  if (c.head_dim % 16 != 0 || c.head_dim > kMaxHeadDim) {
    return Status::invalid("{}: attention heads of {} elements, expected a multiple of 16 up to {}",
                           file.name(), c.head_dim, int32_t(kMaxHeadDim));
  }
  return {};
}

Status read_vocabulary(const GgufFile& file, ModelConfig& c) {
  const GgufTensor* table = file.find_tensor("token_embd.weight");
  if (!table) return Status::invalid("{}: tensor 'token_embd.weight' is missing", file.name());
  if (table->n_dims != 2 || table->dims[1] > kMaxVocab) {
    return Status::invalid("{}: tensor 'token_embd.weight' is {}, expected [{}, vocabulary up to {}]",
                           file.name(), gguf_shape(*table), c.dim, int32_t(kMaxVocab));
  }
  c.vocab_size = int32_t(table->dims[1]);
  const auto listed = file.metadata().array_length("tokenizer.ggml.tokens");
  if (listed.is_ok() && *listed != uint64_t(c.vocab_size)) {
    return Status::invalid("{}: {} tokens in 'tokenizer.ggml.tokens', {} rows in tensor 'token_embd.weight'",
                           file.name(), *listed, c.vocab_size);
  }
  return {};
}

// Number of elements, and the type that most bytes of matrices have.
void count_tensors(const GgufFile& file, ModelConfig& c) {
  std::map<DType, uint64_t> bytes;
  for (const GgufTensor& tensor : file.tensors()) {
    c.n_params += tensor.elements();
    if (tensor.n_dims > 1) bytes[tensor.dtype] += tensor.data.size();
  }
  uint64_t most = 0;
  for (const auto& [type, total] : bytes) {
    if (total <= most) continue;
    most = total;
    c.quantisation = dtype_info(uint32_t(type))->name;
  }
}

}  // namespace

Result<int32_t> ArchKeys::get_int(std::string_view name, int32_t low, int32_t high) const {
  ASSIGN_OR_RETURN(const uint32_t value, file_.metadata().get_u32(full(name)));
  if (value < uint32_t(low) || value > uint32_t(high)) {
    return Status::invalid("{}: metadata key '{}' is {}, expected {} to {}", file_.name(), full(name), value,
                           low, high);
  }
  return int32_t(value);
}

Result<int32_t> ArchKeys::get_int_or(std::string_view name, int32_t fallback, int32_t low,
                                     int32_t high) const {
  return has(name) ? get_int(name, low, high) : Result<int32_t>(fallback);
}

Result<float> ArchKeys::get_positive(std::string_view name) const {
  ASSIGN_OR_RETURN(const float value, file_.metadata().get_f32(full(name)));
  if (value <= 0)
    return Status::invalid("{}: metadata key '{}' is {}, expected more than 0", file_.name(), full(name),
                           value);
  return value;
}

Result<float> ArchKeys::get_positive_or(std::string_view name, float fallback) const {
  return has(name) ? get_positive(name) : Result<float>(fallback);
}

Result<std::string_view> ArchKeys::get_string_or(std::string_view name, std::string_view fallback) const {
  return file_.metadata().get_string(full(name), fallback);
}

Result<ModelConfig> read_model_config(const GgufFile& file) {
  ModelConfig c;
  ASSIGN_OR_RETURN(c.architecture, file.metadata().get_string("general.architecture"));
  ASSIGN_OR_RETURN(c.name, file.metadata().get_string("general.name", c.architecture));
  const ArchKeys keys(file, c.architecture);
  ASSIGN_OR_RETURN(c.n_layers, keys.get_int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(c.dim, keys.get_int("embedding_length", 1, kMaxWidth));
  c.embedding_dim = c.dim;
  ASSIGN_OR_RETURN(c.ffn_dim, keys.get_int("feed_forward_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(c.context_length, keys.get_int("context_length", 1, 1 << 30));
  RETURN_IF_ERROR(read_heads(keys, file, c));
  if (c.n_heads * c.head_dim > kMaxWidth) {
    return Status::invalid("{}: {} heads of {} elements, limit {} elements", file.name(), c.n_heads,
                           c.head_dim, int32_t(kMaxWidth));
  }
  RETURN_IF_ERROR(read_vocabulary(file, c));
  count_tensors(file, c);
  return c;
}

std::vector<double> RopeConfig::inverse_frequencies() const {
  std::vector<double> frequencies(size_t(rotated) / 2);
  for (size_t j = 0; j < frequencies.size(); ++j) {
    frequencies[j] =
        scale * std::pow(base, -2.0 * double(j) / rotated) / (divisors.empty() ? 1.0 : double(divisors[j]));
  }
  return frequencies;
}

Result<RopeConfig> read_rope_config(const GgufFile& file, const ModelConfig& config) {
  const ArchKeys keys(file, config.architecture);
  RopeConfig rope;
  ASSIGN_OR_RETURN(rope.base, keys.get_positive_or("rope.freq_base", 10000));
  ASSIGN_OR_RETURN(rope.rotated,
                   keys.get_int_or("rope.dimension_count", config.head_dim, 2, config.head_dim));
  if (rope.rotated % 2 != 0) {
    return Status::invalid("{}: metadata key '{}' is {}, expected an even number", file.name(),
                           keys.full("rope.dimension_count"), rope.rotated);
  }
  ASSIGN_OR_RETURN(const std::string_view scaling, keys.get_string_or("rope.scaling.type", "linear"));
  if (scaling != "linear" && scaling != "none") {
    return Status::invalid(
        "{}: metadata key '{}' is {}; supported are 'none', 'linear' and Llama 3's tensor "
        "'rope_freqs.weight'",
        file.name(), keys.full("rope.scaling.type"), printable(scaling));
  }
  if (scaling == "none") return rope;
  // Files from before rope.scaling.factor call it rope.scale_linear.
  ASSIGN_OR_RETURN(const float old_factor, keys.get_positive_or("rope.scale_linear", 1));
  ASSIGN_OR_RETURN(const float factor, keys.get_positive_or("rope.scaling.factor", old_factor));
  rope.scale = 1.0 / factor;
  return rope;
}

}  // namespace gapless
