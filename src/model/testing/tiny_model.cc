#include "model/testing/tiny_model.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <random>

#include "model/testing/quantise.h"
#include "model/testing/tiny_vocab.h"

namespace gapless::testing {
namespace {

constexpr int32_t kLayers = 2, kDim = 64, kHeads = 4, kKvHeads = 2, kFfn = 256;

// Writes random tensors. Each has its own stream of numbers, so that a type or a tensor more does not change
// the others.
class RandomTensors {
 public:
  RandomTensors(GgufWriter& writer, const TinyModelOptions& options) : writer_(writer), options_(options) {}

  // W[n, k] ~ N(0, (gain / sqrt(k))^2): the output is about `gain` times its input.
  void matrix(const std::string& name, int64_t n, int64_t k, float gain, DType type) {
    if (options_.dtype && k % dtype_info(uint32_t(*options_.dtype))->block == 0) type = *options_.dtype;
    const int64_t dims[] = {k, n};
    writer_.add_tensor(name, dims, type,
                       quantise(type, normals(size_t(n * k), 0, gain / std::sqrt(float(k)))));
  }
  void vector(const std::string& name, int64_t n, float mean) {
    const int64_t dims[] = {n};
    writer_.add_tensor(name, dims, DType::kF32, quantise(DType::kF32, normals(size_t(n), mean, 0.1f * mean)));
  }

 private:
  std::vector<float> normals(size_t count, float mean, float deviation) {
    std::mt19937_64 bits(options_.seed * 1000 + stream_++);
    const auto uniform = [&] { return (double(bits() >> 11) + 0.5) * 0x1p-53; };
    std::vector<float> values(count);
    for (float& value : values) {
      const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * std::numbers::pi * uniform();
      value = float(mean + deviation * radius * std::cos(angle));
    }
    return values;
  }

  GgufWriter& writer_;
  const TinyModelOptions& options_;
  uint64_t stream_ = 0;
};

void add_shape(GgufWriter& writer, const std::string& arch, const TinyModelOptions& options,
               uint32_t head_dim) {
  writer.add_string("general.architecture", arch);
  writer.add_string("general.name", "Tiny " + arch);
  writer.add_u32(arch + ".block_count", kLayers);
  writer.add_u32(arch + ".context_length", uint32_t(options.context_length));
  writer.add_u32(arch + ".embedding_length", kDim);
  writer.add_u32(arch + ".feed_forward_length", kFfn);
  writer.add_u32(arch + ".attention.head_count", kHeads);
  writer.add_u32(arch + ".attention.head_count_kv", kKvHeads);
  writer.add_u32(arch + ".attention.key_length", head_dim);
  writer.add_u32(arch + ".attention.value_length", head_dim);
  writer.add_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

struct LayerTypes {
  DType q, k, v, o, gate, up, down;
};

constexpr LayerTypes kLlamaTypes[kLayers] = {
    {DType::kQ4_1, DType::kQ4_1, DType::kQ4_1, DType::kQ4_0, DType::kQ4_1, DType::kQ4_0, DType::kQ6_K},
    {DType::kQ5_1, DType::kQ5_1, DType::kQ8_0, DType::kQ5_0, DType::kF32, DType::kBF16, DType::kQ4_K}};
constexpr LayerTypes kGemmaTypes[kLayers] = {
    {DType::kQ5_0, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K, DType::kQ5_0, DType::kQ5_0, DType::kQ6_K},
    {DType::kF16, DType::kF16, DType::kQ4_1, DType::kQ5_K, DType::kQ4_0, DType::kQ8_0, DType::kQ5_K}};

// Queries and keys are larger than the rest, so that attention picks positions instead of averaging.
void add_layer(RandomTensors& tensors, int32_t layer, const LayerTypes& types, int64_t head_dim) {
  const std::string blk = fmt::format("blk.{}.", layer);
  const int64_t q = kHeads * head_dim, kv = kKvHeads * head_dim;
  tensors.vector(blk + "attn_norm.weight", kDim, 1);
  tensors.matrix(blk + "attn_q.weight", q, kDim, 1.5f, types.q);
  tensors.matrix(blk + "attn_k.weight", kv, kDim, 1.5f, types.k);
  tensors.matrix(blk + "attn_v.weight", kv, kDim, 2, types.v);
  tensors.matrix(blk + "attn_output.weight", kDim, q, 2, types.o);
  tensors.vector(blk + "ffn_norm.weight", kDim, 1);
  tensors.matrix(blk + "ffn_gate.weight", kFfn, kDim, 2, types.gate);
  tensors.matrix(blk + "ffn_up.weight", kFfn, kDim, 2, types.up);
  tensors.matrix(blk + "ffn_down.weight", kDim, kFfn, 1, types.down);
}

}  // namespace

Bytes tiny_llama(const TinyModelOptions& options) {
  constexpr int32_t kHeadDim = 32;
  GgufWriter writer;
  add_shape(writer, "llama", options, kHeadDim);
  writer.add_u32("llama.rope.dimension_count", kHeadDim);
  writer.add_f32("llama.rope.freq_base", 10000);
  add_tiny_bpe_vocab(writer, options.vocab);

  RandomTensors tensors(writer, options);
  // Rows of about unit elements; small when tied, or the head would find the input token itself.
  tensors.matrix("token_embd.weight", options.vocab, kDim, options.tied ? 3 : 8,
                 options.tied ? DType::kQ8_0 : DType::kF16);
  tensors.vector("output_norm.weight", kDim, 1);
  for (int32_t layer = 0; layer < kLayers; ++layer) add_layer(tensors, layer, kLlamaTypes[layer], kHeadDim);
  if (!options.tied) tensors.matrix("output.weight", options.vocab, kDim, 3, DType::kQ8_0);
  if (options.llama3_rope) {
    const int64_t dims[] = {kHeadDim / 2};
    std::vector<float> factors(kHeadDim / 2);
    for (size_t j = 0; j < factors.size(); ++j) factors[j] = 1 + 7.0f * float(j) / float(factors.size() - 1);
    writer.add_tensor("rope_freqs.weight", dims, DType::kF32, quantise(DType::kF32, factors));
  }
  options.edit(writer);
  return writer.finish();
}

Bytes tiny_gemma3(const TinyModelOptions& options) {
  constexpr int32_t kHeadDim = 64;
  GgufWriter writer;
  add_shape(writer, "gemma3", options, kHeadDim);
  writer.add_f32("gemma3.rope.freq_base", 1000000);
  writer.add_u32("gemma3.attention.sliding_window", 32);
  writer.add_u32("gemma3.attention.sliding_window_pattern", 2);
  add_tiny_spm_vocab(writer, options.vocab);

  RandomTensors tensors(writer, options);
  tensors.matrix("token_embd.weight", options.vocab, kDim, 2.5f, DType::kQ8_0);
  tensors.vector("output_norm.weight", kDim, 1);
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    add_layer(tensors, layer, kGemmaTypes[layer], kHeadDim);
    tensors.vector(blk + "attn_q_norm.weight", kHeadDim, 1.5f);
    tensors.vector(blk + "attn_k_norm.weight", kHeadDim, 1.5f);
    // The embedding enters with elements of about 2.5: larger layer outputs, or the tied head would find the
    // input token itself.
    tensors.vector(blk + "post_attention_norm.weight", kDim, 16);
    tensors.vector(blk + "post_ffw_norm.weight", kDim, 16);
  }
  options.edit(writer);
  return writer.finish();
}

}  // namespace gapless::testing
