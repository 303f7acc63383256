// The load of `gapless bench sampling`: steps of the sampler alone, on rows of logits that stay where they
// are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace gapless {

struct SamplingLoad {
  std::string kind;  // one of sampling_kinds()
  int32_t vocab = 0, rows = 0;
};

// greedy; temperature; top-p on logits with a clear head; top-p-flat on nearly flat ones, where the nucleus
// is most of the vocabulary; penalties: greedy, with a prompt of 256 tokens; logprobs: greedy, with the 20
// most likely of each row.
std::vector<std::string> sampling_kinds();

// Seconds of one step's sampling: the median of many, of the ops alone as far as steps allow it (several
// samplings share a step). Blocks for about half a second; the calling thread is the stream's only user.
Result<double> measure_sampling(Device& device, Stream& stream, const SamplingLoad& load);

}  // namespace gapless
