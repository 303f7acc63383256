// What the simulated accelerator stands for: a machine and a model on it, as numbers. The clock of device/sim
// reads the machine's, model/sim reports its work by the model's.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gapless {

// Infinite speeds and no latencies: a step costs nothing.
struct SimMachine {
  double bytes_per_second = std::numeric_limits<double>::infinity();  // of device memory
  double flops_per_second = std::numeric_limits<double>::infinity();  // dense BF16
  double launch_latency = 0;  // seconds from submit until the step may begin on an idle device
  double step_overhead = 0;   // seconds of every step on top of its roofline
};

struct SimModel {
  int64_t weight_bytes = 0;   // read once by a step that has rows
  int64_t matmul_params = 0;  // 2 FLOPs per token each
  int64_t kv_bytes_per_token = 0;
  int64_t attention_flops = 0;  // per token and position of its context
  int32_t n_layers = 0;
  // What is really computed (model/sim/sim_logits.h).
  int32_t vocab_size = 0;      // at most kSimMaxVocab, at least kSimMinVocab
  int32_t context_length = 0;  // tokens
  int64_t max_kv_tokens = 0;   // what the machine's memory holds beside the weights; 0: not bounded by it
  bool reads_all = true;       // reads back every position, not a sample
};

inline constexpr int32_t kSimMinVocab = 128, kSimMaxVocab = 2048;

struct SimProfile {
  std::string name;
  SimMachine machine;
  SimModel model;
};

std::vector<std::string> sim_profile_names();

// An empty name is `zero`. An error lists the known ones.
Result<SimProfile> find_sim_profile(std::string_view name);

}  // namespace gapless
