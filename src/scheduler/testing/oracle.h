// What the right answer to a request is, told apart from everything that schedules: it sees the prompt and
// the parameters.
#pragma once

#include <string>
#include <vector>

#include "sampling/token_bytes.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_config.h"

namespace gapless::testing {

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;  // of ids
  std::string visible;          // text that may be shown at the end
  Finish finish;
  std::vector<float> prompt_logprobs;
};

Answer oracle(const SchedulerConfig& config, const TokenBytes& tokens, const Request& request,
              int32_t choice);

}  // namespace gapless::testing
