// Complete GGUF files of small random models: 2 layers, width 64, vocabulary 512, a real tokenizer, weights
// of every supported type. Same options, same bytes. Their answers are nonsense, but varied: greedy decoding
// does not fall into one token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "model/testing/gguf_writer.h"

namespace gapless::testing {

struct TinyModelOptions {
  uint64_t seed = 1;
  int32_t context_length = 2048;
  int32_t vocab = 512;       // at least 358
  bool tied = false;         // Llama: the output head is the embedding table (Gemma's always is)
  bool llama3_rope = false;  // Llama: with a rope_freqs.weight tensor
  std::optional<DType> dtype =
      std::nullopt;  // all matrices whose rows its blocks divide; by default a mixture of types
  // Called last: adds keys and tensors, or removes tensors.
  std::function<void(GgufWriter&)> edit = [](GgufWriter&) {};
};

// Llama: 4 heads on 2 KV heads of 32, feed-forward 256, ChatML template; <|im_end|> (2) ends a turn.
Bytes tiny_llama(const TinyModelOptions& options = {});
// Gemma 3: 4 heads on 2 KV heads of 64, feed-forward 256, layer 0 with a sliding window of 32, layer 1
// global; no chat template.
Bytes tiny_gemma3(const TinyModelOptions& options = {});

}  // namespace gapless::testing
