// The (re)admission of a request to a request slot, as the forward side sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/sampling_params.h"

namespace gapless {

// Applied on the device in stream order before the step's rows: whatever a former owner of the slot left is
// gone, and a cached prefix or a retraction cannot leave a wrong count.
struct SlotInit {
  int32_t slot = 0;
  uint32_t epoch = 0;  // of the admission: never 0, and no other has the same
  SamplingParams params;
  int32_t cached_tokens = 0;        // positions whose KV is there already
  std::vector<int32_t> prompt_ids;  // for repetition_penalty
  std::vector<int32_t>
      output_ids;  // tokens already emitted (after a retraction); the next output index is their number

  friend bool operator==(const SlotInit&, const SlotInit&) = default;
};

// Logprob of one token, of the model's own distribution (before bias, penalties, mask and temperature).
struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

inline constexpr int32_t kMaxTopLogprobs = 20;

}  // namespace gapless
