// What the rows with a grammar wait for: which tokens each may emit next. Made by the scheduler once it knows
// the token before, read by the ops of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gapless {

enum class RowMask : uint8_t {
  kMissing,  // it could not be made: the row fails
  kAllowed,  // a set of tokens
  kEnded,    // the request has ended: the row is not sampled, and that is no failure
};

struct SamplingInfo {
  std::vector<RowMask> rows;      // the batch's masked rows, in order
  std::vector<uint32_t> allowed;  // [rows][mask_words(vocab)]; read where the row is kAllowed
};

// Token id is bit id % 32 of word id / 32. Bits from the vocabulary's size on do not count.
inline constexpr size_t mask_words(int32_t vocab_size) {
  return (size_t(vocab_size) + 31) / 32;
}

}  // namespace gapless
