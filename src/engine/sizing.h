// The numbers that follow from the model, the machine and the options: context, KV pool, rows of a step. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "engine/engine_options.h"
#include "model/model.h"
#include "worker/model_runner.h"

namespace gapless {

struct Sizing {
  SchedulerConfig scheduler;  // complete
  ModelRunnerOptions runner;
  int64_t kv_bytes = 0;            // of the whole pool
  std::vector<std::string> notes;  // what was adjusted and why, one sentence each
};

// memory_limit: bytes this process may use (cgroup or RAM). An error names the flags involved and both
// numbers.
Result<Sizing> resolve_sizing(const EngineOptions& options, const ModelConfig& model,
                              std::vector<int32_t> eos_ids, int64_t memory_limit);

}  // namespace gapless
