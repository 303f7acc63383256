// Everything the sampler knows of the request in a slot: parameters, token counts, position in the random
// stream.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/slot_init.h"

namespace gapless {

// Built on the host; from then on used by the device ops of steps in stream order, by one op chunk at a time
// where it changes. Counts are kept sparse, and only for requests with a penalty: a dense row of a 262k
// vocabulary would be 1 MB for each of the slots.
class SlotState {
 public:
  // eos_ids ascending. Allocates for max_tokens tokens of output.
  SlotState(const SlotInit& init, int32_t vocab_size, std::span<const int32_t> eos_ids);

  const SamplingParams& params() const { return params_; }
  int32_t output_index() const { return output_index_; }  // of the next token

  // Below SGLang's threshold a temperature means argmax, and so does a choice among one.
  bool greedy() const { return params_.temperature < 1e-6f || params_.top_k == 1; }
  // Whether some tokens are out of the draw.
  bool filtered() const { return params_.top_k > 0 || params_.top_p < 1 || params_.min_p > 0; }
  bool wants_logprobs() const { return params_.top_logprobs >= 0; }
  bool changes_logits() const;

  // Applies, in this order, to a row of logits: logit_bias (-100 bans); frequency and presence penalty;
  // repetition penalty; the ban of EOS ids and stop_token_ids until min_tokens. Keeps the raw values for
  // raw_logit() when logprobs are wanted.
  void change_logits(float* logits);
  // The model's own logit of a token, from the row that change_logits() changed.
  float raw_logit(const float* logits, int32_t token) const;
  // The slot emitted `token`.
  void advance(int32_t token);

 private:
  struct Count {
    int32_t token, outputs;
  };
  struct Raw {
    int32_t token;
    float logit;
  };
  Count& count_of(int32_t token);
  bool bans_ends() const { return output_index_ < params_.min_tokens; }

  const SamplingParams params_;
  int32_t output_index_;
  bool penalised_;
  std::vector<int32_t> ends_;  // what min_tokens bans
  std::vector<Count> counts_;  // distinct tokens of prompt and output, in order of appearance
  std::vector<int32_t>
      index_;  // hash table over counts_: position + 1, 0 is free; a power of two, at most half full
  std::vector<Raw> raw_;
};

}  // namespace gapless
