// Sets of tokens as bits (sampling_info.h). Only the sampler and the worker include this.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace gapless {

// The first allowed id from `from` on; -1: none.
inline int32_t next_allowed(const uint32_t* allowed, int32_t from, int32_t vocab_size) {
  for (int32_t begin = from / 32 * 32; begin < vocab_size; begin += 32) {
    uint32_t word = allowed[begin / 32];
    if (begin < from) word &= ~uint32_t{0} << (from - begin);
    if (word == 0) continue;
    const int32_t id = begin + std::countr_zero(word);
    return id < vocab_size ? id : -1;
  }
  return -1;
}
inline int32_t first_allowed(const uint32_t* allowed, int32_t vocab_size) {
  return next_allowed(allowed, 0, vocab_size);
}

// -inf for those of the ids begin .. begin + n - 1, whose logits x holds, that are not allowed. begin is a
// multiple of 32.
inline void ban_others(const uint32_t* allowed, int32_t begin, int32_t n, float* x) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (int32_t i = 0; i < n; i += 32) {
    const uint32_t word = allowed[(begin + i) / 32];
    const int32_t end = std::min(i + 32, n);
    if (word == 0) {  // most of them, in most masks
      std::fill(x + i, x + end, kNever);
    } else if (word != ~uint32_t{0}) {
      for (int32_t at = i; at < end; ++at)
        if (!(word >> (at - i) & 1)) x[at] = kNever;
    }
  }
}

}  // namespace gapless
