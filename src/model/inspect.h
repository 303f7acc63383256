// What a model file contains and what running it takes, without loading it. Printing is up to the caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/gguf.h"
#include "model/model.h"

namespace gapless {

struct TensorSummary {
  std::string name, dtype, shape;
  int64_t bytes;  // in the file
};

// All tensors of one type.
struct TypeSummary {
  std::string dtype;
  int64_t tensors, elements, bytes;
};

struct ModelSummary {
  ModelConfig config;
  uint32_t gguf_version;
  int64_t file_bytes;
  int64_t weight_bytes;  // in memory, repacked for the kernels
  double bits_per_weight;
  bool tied_embeddings;   // the output head is the embedding table
  std::string tokenizer;  // tokenizer.ggml.model and .pre: "gpt2 (smollm)"
  bool has_chat_template;
  std::vector<TensorSummary> tensors;  // in file order
  std::vector<TypeSummary> types;      // most bytes first

  // Memory for weights and a KV cache (f16) of this many tokens, all sequences together. Scratch memory and
  // the tokenizer come on top.
  int64_t memory_bytes(int64_t kv_tokens) const {
    return weight_bytes + kv_tokens * config.kv_bytes_per_token(KvDtype::kF16);
  }
};

// Errors as load_model(): an unknown architecture, or metadata out of range.
Result<ModelSummary> inspect_model(const GgufFile& file);

}  // namespace gapless
