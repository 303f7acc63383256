// What the right answer to a request is, from its prompt and parameters alone: the simulated model's
// published function of the ids (model/sim/sim_logits.h), and the sampling rules of docs/sampling.md written
// down a second time, as plainly as they can be. Nothing here has heard of batches, pages, slots or loops.
//
// Logprobs and draws are compared bit for bit, so the order of the sums is restated too: it is part of the
// sampler's contract (sampling/block_math.h, sampling/row_sampler.h). The vocabulary is one block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampling/token_bytes.h"
#include "scheduler/request.h"

namespace gapless::sim_testing {

// A model as a client knows it.
struct Vocabulary {
  int32_t size = 0;  // <= 4096
  std::vector<int32_t> eos_ids;
  TokenBytes tokens;
};

struct ExpectedToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct Answer {
  std::vector<ExpectedToken> tokens;  // of the answer; with logprobs if they were asked for
  std::vector<ExpectedToken> prompt_logprobs;
  int64_t visible_bytes = 0;  // at its end
  FinishReason reason = FinishReason::kLength;
  std::variant<std::monostate, int32_t, std::string> matched;

  std::vector<int32_t> ids() const;
};

Answer expected_answer(const Vocabulary& vocabulary, const Request& request, int32_t choice);

}  // namespace gapless::sim_testing
