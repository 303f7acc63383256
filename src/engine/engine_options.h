// What can be set when an engine starts. The command line fills this in; every default is explained in
// docs/cli.md.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops.h"
#include "scheduler/scheduler_config.h"

namespace gapless {

struct EngineOptions {
  std::string model_path;         // empty: the simulated model, on device sim only
  std::string served_model_name;  // empty: the file's name without .gguf
  std::string chat_template;      // empty: the file's own; else a built-in name or a path
  std::string device = "cpu";
  int32_t threads = 0;  // 0: physical cores of the affinity mask and cgroup
  std::string isa = "auto";
  std::string attention_backend = "cpu";  // or "reference"
  KvDtype kv_dtype = KvDtype::kF16;
  int64_t kv_mem_bytes = 0;    // 0: a quarter of the memory limit; ignored when max_total_tokens is set
  int32_t context_length = 0;  // 0: the model's own
  int32_t text_threads = 2;
  bool profile = false;                   // measure every op of every step
  bool disable_overlap_schedule = false;  // the normal loop: compute, then think, then compute
  // max_total_tokens 0: from kv_mem_bytes. context_length, vocab_size and eos_ids are filled in by the
  // engine.
  SchedulerConfig scheduler;
};

// The scheduler's defaults that depend on the device; docs/cli.md says why.
inline SchedulerConfig scheduler_defaults(const std::string& device) {
  SchedulerConfig config;
  if (device == "cpu") return config;
  config.max_running_requests = 256;
  config.chunked_prefill_size = 4096;
  return config;
}

}  // namespace gapless
