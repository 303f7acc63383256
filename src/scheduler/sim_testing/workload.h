// A random workload: a configuration, requests with their right answers, and what happens when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/scheduler_config.h"
#include "scheduler/sim_testing/oracle.h"
#include "scheduler/sim_testing/random.h"

namespace gapless::sim_testing {

struct Happening {
  enum class Kind : uint8_t { kRequest, kAbort, kFlush, kSwitch };
  int64_t at;  // tick of a stepped run; in a threaded one only the order counts
  Kind kind;
  size_t request = 0;  // index, of kRequest and kAbort
  EventLoop to{};      // of kSwitch
};

struct Workload {
  uint64_t seed = 0;
  SchedulerConfig config;
  EventLoop loop = EventLoop::kOverlap;  // to begin with
  Vocabulary vocabulary;
  std::vector<Request> requests;             // ids 1, 2, ...
  std::vector<std::vector<Answer>> answers;  // of each request's choices
  std::vector<Happening> happenings;         // in order
  double fail_probability = 0;               // of a step of the device
  int32_t eviction_percent = 0;              // of launches at which cached pages that nobody uses are dropped

  std::string description() const;
};

// What a family of workloads has more of than the general one, so that a fault that needs it is met soon.
enum class Flavour : uint8_t {
  kAny,           // any of these, by the seed
  kGeneral,       //
  kBurst,         // many prompts at once, prefill batches in a row, answers of one token
  kTight,         // a pool so small that requests are sent back all the time
  kConversation,  // prompts that continue earlier answers
  kFailures,      // a tight pool, and steps that fail
};

Workload make_workload(uint64_t seed, Flavour flavour = Flavour::kAny);

}  // namespace gapless::sim_testing
