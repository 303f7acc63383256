// From one row of logits, and what the passes over its blocks found, to one token. Device side; nothing here
// allocates.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/block_math.h"
#include "sampling/sampling_params.h"

namespace gapless {

// What a pass over one vocabulary block found.
struct BlockStats {
  BlockMax max;
  float sum;  // of exp((logit - max) * scale); not set where nobody needs it
};

struct SampledRow {
  const float* logits;
  int32_t vocab;
  std::span<const BlockStats> blocks;  // scale 1 / temperature
  std::span<const float> group_max;    // kGroupsPerBlock per block
  const BlockMath* math;
};

// The largest logit, the lowest id of those that have it.
int32_t sample_greedy(std::span<const BlockStats> blocks);

// Draws from softmax(logits / temperature), by inverse CDF in order of ids. `uniform` in [0, 1).
int32_t sample_all(const SampledRow& row, float temperature, double uniform, std::span<std::byte> scratch);

// The same with top_k, top_p and min_p. Tokens are in order of descending logit, equal ones by ascending id,
// and three rules each keep a beginning of that order, in turn: top_k the first k; top_p the shortest one
// that has at least top_p of the probability of what top_k left; min_p those with at least min_p times the
// probability of the first. The first token is always kept.
//
// The candidates are found without a sort of the vocabulary: the K-th largest of the group maxima is a lower
// bound of the K-th largest logit, so at least K logits reach it, and few more do. Where the cut lies deeper,
// or ties make them too many, an exact selection by radix over the whole row decides. Which way it goes
// depends on the row alone.
int32_t sample_filtered(const SampledRow& row, const SamplingParams& params, double uniform,
                        std::span<std::byte> scratch);

// log of the sum of exp(logit), from the blocks of the raw row (scale 1).
double log_sum_exp(std::span<const BlockStats> blocks);

}  // namespace gapless
