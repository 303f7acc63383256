// What the simulated model answers, as a pure function of the ids it read. All integer arithmetic and one
// exact conversion, so that anybody gets the same bits.
//
//   hash   = sim_mix over the ids at the positions that count, ascending within each range, from sim_seed(n)
//   logit  = 24 bits of a hash of (hash, token), in [0, 16)
//
// Which positions of a context of n tokens count is a function of n alone (for_each_sim_range):
//   all of them (SimReadback::kAll), or
//   16 spread evenly, floor(n * i / 16) for i = 0 .. 15, then the last 16 (SimReadback::kSample); with fewer
//   than 32 tokens all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace gapless {

enum class SimReadback { kAll, kSample };

inline constexpr int32_t kSimSpread = 16, kSimTail = 16;

// Calls visit(begin, end) for the ranges of positions that count, in the order in which they are hashed.
template <class Visit>
void for_each_sim_range(int32_t n, SimReadback readback, Visit&& visit) {
  if (readback == SimReadback::kAll || n < kSimSpread + kSimTail) return visit(0, n);
  for (int32_t i = 0; i < kSimSpread; ++i) {
    const auto at = int32_t(int64_t(n) * i / kSimSpread);
    visit(at, at + 1);
  }
  visit(n - kSimTail, n);
}

inline uint64_t sim_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 32;
}
inline uint64_t sim_seed(int32_t n) {
  return sim_mix(0x5bd1e995, uint64_t(n));
}

// 16 / vocabulary is the mean distance of the largest logits: some 16 of 256 tokens share most of the
// probability at temperature 1.
inline float sim_logit(uint64_t hash, int32_t token) {
  uint32_t x = uint32_t(hash) + uint32_t(token) * 0x9e3779b1u;
  x = (x ^ x >> 16) * (uint32_t(hash >> 32) | 1);
  x = (x ^ x >> 15) * 0x85ebca6bu;
  return float(int32_t((x ^ x >> 13) >> 8)) * 0x1p-20f;
}

// Of the context `ids`, which ends with the token whose successor is wanted.
inline uint64_t sim_hash(std::span<const int32_t> ids, SimReadback readback) {
  const auto n = int32_t(ids.size());
  uint64_t hash = sim_seed(n);
  for_each_sim_range(n, readback, [&](int32_t begin, int32_t end) {
    for (int32_t p = begin; p < end; ++p) hash = sim_mix(hash, uint64_t(ids[size_t(p)]));
  });
  return hash;
}

inline std::vector<float> sim_logits(std::span<const int32_t> ids, int32_t vocab, SimReadback readback) {
  const uint64_t hash = sim_hash(ids, readback);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (int32_t t = 0; t < vocab; ++t) logits[size_t(t)] = sim_logit(hash, t);
  return logits;
}

}  // namespace gapless
