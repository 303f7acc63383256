// What a request asks of the sampler, with every default resolved and every range checked before it gets
// here. Plain data: it is copied into a batch and can be written to bytes. Semantics: docs/sampling.md;
// OpenAI's where OpenAI has the field, else SGLang's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace gapless {

struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy (argmax, lowest id wins a tie)
  int32_t top_k = 0;                // 0: all
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float frequency_penalty = 0.0f;   // [-2, 2], times the count of the token in the output
  float presence_penalty = 0.0f;    // [-2, 2], once if the token is in the output
  float repetition_penalty = 1.0f;  // (0, 2], prompt and output: logit > 0 ? logit / r : logit * r
  uint64_t seed = 0;                // always set: the request's own, or one drawn at intake
  int32_t choice = 0;               // which of the n answers; part of the random stream's key
  int32_t max_tokens = 0;           // output tokens, >= 1, already clipped to the context
  int32_t min_tokens = 0;           // until then EOS ids and stop_token_ids are banned from sampling
  bool ignore_eos = false;  // EOS ids do not end the answer (stop_token_ids and stop strings still do)
  std::vector<int32_t> stop_token_ids;                // the request's own
  std::vector<std::pair<int32_t, float>> logit_bias;  // ids in the vocabulary, each once
  int32_t top_logprobs = -1;  // -1: no logprobs; 0: of the sampled token; n: and of the n most likely

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// How a token ends an answer. One pure function, used by the scheduler and, to drop rows that ended, by the
// forward side.
enum class TokenEnd : uint8_t { kNo, kEos, kStopToken, kLength };

// output_index: 0 for the first output token. eos_ids: the model's end-of-generation ids, ascending. Length
// is checked last, so a token that is both EOS and the last one allowed reports kEos. A banned token
// (min_tokens not reached) never ends an answer.
TokenEnd ends_by_token(const SamplingParams& params, std::span<const int32_t> eos_ids, int32_t output_index,
                       int32_t token);

}  // namespace gapless
