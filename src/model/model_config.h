// The shape of a decoder-only transformer, read from GGUF metadata and checked: everything that allocates or
// multiplies later may rely on these numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf.h"
#include "model/model.h"

namespace gapless {

// Reads `<architecture>.<name>` keys. Every value is checked against its limits before it is used as a size.
class ArchKeys {
 public:
  ArchKeys(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string full(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.metadata().has(full(name)); }
  Result<int32_t> get_int(std::string_view name, int32_t low, int32_t high) const;
  Result<int32_t> get_int_or(std::string_view name, int32_t fallback, int32_t low, int32_t high) const;
  // Greater than zero.
  Result<float> get_positive(std::string_view name) const;
  Result<float> get_positive_or(std::string_view name, float fallback) const;
  Result<std::string_view> get_string_or(std::string_view name, std::string_view fallback) const;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// The numbers that Llama- and Gemma-like files have in common. Keys that a converter may leave out get
// llama.cpp's defaults: as many KV heads as heads, head_dim = dim / heads. The vocabulary is the embedding
// table's rows.
Result<ModelConfig> read_model_config(const GgufFile& file);

// How positions are turned into angles.
struct RopeConfig {
  double base = 10000;
  double scale = 1;             // multiplies positions: 1 / factor of linear scaling
  int32_t rotated = 0;          // elements of a head that are rotated, even
  std::vector<float> divisors;  // per pair, from Llama 3's rope_freqs.weight; empty: none

  // Angle per position of pair j.
  std::vector<double> inverse_frequencies() const;
};

// rope.freq_base, rope.dimension_count, rope.scaling.*; scaling that needs more than a factor (yarn,
// longrope) is an error.
Result<RopeConfig> read_rope_config(const GgufFile& file, const ModelConfig& config);

}  // namespace gapless
