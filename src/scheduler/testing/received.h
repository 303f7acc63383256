// Everything one choice of a request was sent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/request.h"

namespace gapless::testing {

struct Received {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<OutputToken> prompt_logprobs;
  std::vector<int64_t> steps;  // of the device, completed before each token was delivered
  int64_t visible_bytes = 0;
  int32_t prompt_tokens = -1, cached_tokens = -1;
  std::optional<Finish> finish;
};

using ChoiceKey = std::pair<RequestId, int32_t>;
using ReceivedMap = std::map<ChoiceKey, Received>;

}  // namespace gapless::testing
