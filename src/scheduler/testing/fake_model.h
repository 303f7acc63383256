// A language model for tests: its next token is a hash of everything that should decide it, so any wrong
// input changes the answer.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

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

inline uint64_t mix_float(uint64_t h, float value) {
  return mix(h, std::bit_cast<uint32_t>(value));
}

// Everything that a request asks of the sampler.
inline uint64_t mix_params(uint64_t h, std::span<const int32_t> outputs, const SamplingParams& params) {
  h = mix(mix(h, params.seed), uint64_t(params.choice));
  for (float value : {params.temperature, params.top_p, params.min_p}) h = mix_float(h, value);
  h = mix(h, uint64_t(params.top_k));
  if (params.frequency_penalty != 0 || params.presence_penalty != 0 || params.repetition_penalty != 1) {
    h = mix(h, hash_ids(outputs));
    h = mix_float(mix_float(h, params.frequency_penalty), params.presence_penalty);
    h = mix_float(h, params.repetition_penalty);
  }
  for (const auto& [id, bias] : params.logit_bias) h = mix_float(mix(h, uint64_t(id)), bias);
  return h;
}

inline bool has(std::span<const uint32_t> tokens, int32_t id) {
  return tokens[size_t(id) / 32] >> id % 32 & 1;
}

// context: every token before it, as the model reads them. outputs: as the sampling state counted them.
// allowed: the row's mask; empty: none.
inline int32_t next_token(std::span<const int32_t> context, std::span<const int32_t> outputs,
                          const SamplingParams& params, std::span<const int32_t> eos_ids, int32_t vocab,
                          std::span<const uint32_t> allowed = {}) {
  const uint64_t h = mix_params(mix(hash_ids(context), outputs.size()), outputs, params);
  auto token = int32_t(h % uint64_t(vocab));
  SamplingParams only_end = params;
  only_end.min_tokens = 0;
  only_end.max_tokens = INT32_MAX;
  const auto banned = [&] {
    return int32_t(outputs.size()) < params.min_tokens &&
           ends_by_token(only_end, eos_ids, 0, token) != TokenEnd::kNo;
  };
  // Of the allowed ones, where that leaves any that is not banned.
  for (int32_t tried = 0; tried < vocab; tried++, token = (token + 1) % vocab)
    if (!banned() && (allowed.empty() || has(allowed, token))) return token;
  for (token = 0; !has(allowed, token);) token++;
  return token;
}

inline float logprob_of(std::span<const int32_t> context, int32_t token) {
  return -float(mix(hash_ids(context), uint64_t(token)) % 100000) / 1000;
}

}  // namespace gapless::testing
