// The passes of sampling over the vocabulary, one block at a time. Bodies of the same loops
// (block_math-inl.h) compiled for different instruction sets (arm64's plain one is NEON already); all give
// the same bits, since every sum has 16 lanes and a fixed tree, and every fma is written out.
#pragma once

#include <cstdint>

namespace gapless {

// The vocabulary is cut at fixed multiples: sums never depend on who computes which piece.
inline constexpr int32_t kVocabBlock = 4096;
// Blocks are cut into groups whose maxima are kept: a bound that finds the largest logits without a sort.
inline constexpr int32_t kMaxGroup = 64;
inline constexpr int32_t kGroupsPerBlock = kVocabBlock / kMaxGroup;

struct BlockMax {
  float max = 0;
  int32_t argmax = 0;  // the lowest index that has it; 0 if all are NaN
};

// n <= kVocabBlock logits each. NaNs are never the maximum.
struct BlockMath {
  // group_max[kGroupsPerBlock]: -inf where the block has no such group.
  BlockMax (*max)(const float* x, int32_t n, float* group_max);
  // w[i] = exp((x[i] - reference) * scale); returns their sum: lane l adds elements l, l + 16, ... in order,
  // then the fixed tree of kernels/numeric.h. w has room for kVocabBlock.
  float (*exp_sum)(const float* x, int32_t n, float reference, float scale, float* w);
};

// The fastest one this CPU can run.
const BlockMath& block_math();
// All it can run, for tests; the plain one first.
const BlockMath* const* all_block_maths(int* count);

extern const BlockMath kBlockMathGeneric, kBlockMathAvx2, kBlockMathAvx512;

}  // namespace gapless
