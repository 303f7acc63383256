// What the two ways of drawing from a row share. Only row_sampler.cc and radix_sampler.cc include this.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "kernels/numeric.h"
#include "sampling/row_sampler.h"

namespace gapless {

// Pieces of the worker's scratch.
template <class T>
std::span<T> carve(std::span<std::byte>& scratch, size_t n) {
  const size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
  CHECK_LE(bytes, scratch.size());
  T* const p = reinterpret_cast<T*>(scratch.data());
  scratch = scratch.subspan(bytes);
  return {p, n};
}

inline float maximum(std::span<const BlockStats> blocks) {
  float m = blocks[0].max.max;
  for (const BlockStats& b : blocks) m = b.max.max > m ? b.max.max : m;
  return m;
}

// The sum of the whole row's weights exp((logit - m) * scale), m the row's maximum.
inline double total_weight(std::span<const BlockStats> blocks, float m, float scale) {
  double total = 0;
  for (const BlockStats& b : blocks) total += double(b.sum) * double(numeric::exp((b.max.max - m) * scale));
  return total;
}

// The first i at which sum + factor * (w[0] + .. + w[i]) exceeds the target; if rounding lets it end below,
// the last one with weight.
inline int32_t walk(std::span<const float> w, double sum, double factor, double target) {
  int32_t last = 0;
  for (int32_t i = 0; i < int32_t(w.size()); ++i) {
    if (!(w[size_t(i)] > 0)) continue;
    last = i;
    sum += factor * double(w[size_t(i)]);
    if (sum > target) break;
  }
  return last;
}

// Draws a token of a row by an exact selection over the whole of it: for cuts that lie too deep to sort for.
// params as for sample_filtered(); m is the row's maximum.
int32_t sample_by_radix(const SampledRow& row, const SamplingParams& params, float m, double uniform,
                        std::span<std::byte> scratch);

}  // namespace gapless
