// Llama and Gemma 3 written a second time, from their papers, in double precision and without any of the code
// under test but the file parser and dequantise(). Slow: for tiny models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/gguf.h"

namespace gapless::testing {

// Logits after each token of the sequence.
std::vector<std::vector<double>> naive_logits(const GgufFile& file, std::span<const int32_t> ids);

// What the output head reads at each token: the final norm of the hidden state.
std::vector<std::vector<double>> naive_hidden(const GgufFile& file, std::span<const int32_t> ids);

}  // namespace gapless::testing
