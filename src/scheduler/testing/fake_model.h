// A language model for tests: its next token is a hash of everything that should decide it, so any wrong
// input changes the answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampling_params.h"

namespace gapless::testing {

inline uint64_t mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e3779b97f4a7c15ull;
  return h ^ (h >> 29);
}

inline uint64_t hash_ids(std::span<const int32_t> ids) {
  uint64_t h = 1;
  for (int32_t id : ids) h = mix(h, uint64_t(id));
  return h;
}

// context: every token before it, as the model reads them. outputs: as the sampling state counted them.
inline int32_t next_token(std::span<const int32_t> context, std::span<const int32_t> outputs,
                          const SamplingParams& params, std::span<const int32_t> eos_ids, int32_t vocab) {
  uint64_t h = hash_ids(context);
  h = mix(mix(h, params.seed), uint64_t(params.choice));
  h = mix(h, outputs.size());
  if (params.frequency_penalty != 0) h = mix(h, hash_ids(outputs));
  auto token = int32_t(h % uint64_t(vocab));
  SamplingParams only_end = params;
  only_end.min_tokens = 0;
  only_end.max_tokens = INT32_MAX;
  const auto banned = [&] {
    return int32_t(outputs.size()) < params.min_tokens &&
           ends_by_token(only_end, eos_ids, 0, token) != TokenEnd::kNo;
  };
  while (banned()) token = (token + 1) % vocab;
  return token;
}

inline float logprob_of(std::span<const int32_t> context, int32_t token) {
  return -float(mix(hash_ids(context), uint64_t(token)) % 100000) / 1000;
}

}  // namespace gapless::testing
