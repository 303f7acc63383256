// Weights that nobody trained, for tests and benchmarks.
#pragma once

#include <random>
#include <vector>

#include "kernels/quant.h"

namespace gapless {

// GGUF blocks of `elements` weights (a multiple of the type's block): every bit of the quants is random;
// scales and minimums are normal with deviations 0.02 and 0.1, so that all values are finite.
std::vector<std::byte> random_weights(DType type, int64_t elements, std::mt19937& rng);

}  // namespace gapless
