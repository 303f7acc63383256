// Random workloads for the scheduler: what is asked of it and when, how it is configured, and how the device
// keeps up. Everything follows from the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/request.h"
#include "scheduler/scheduler_config.h"

namespace gapless::testing {

struct WorkloadEvent {
  enum class Kind : uint8_t { kRequest, kAbort, kFlush, kSwitch };
  int64_t at;  // step of the driver
  Kind kind;
  RequestId id = 0;
};

struct Workload {
  SchedulerConfig config;
  EventLoop loop = EventLoop::kNormal;
  std::vector<Request> requests;      // ids 1, 2, ...
  std::vector<WorkloadEvent> events;  // by time
  int32_t failures = 0;               // steps that fail, at random moments
  bool held = false;                  // the device runs apart from the host, ahead of it or behind
  int32_t eagerness = 4;  // held: of 4 times that the host waits for the device, it runs that often
  uint64_t driver_seed = 0;
};

Workload make_workload(uint64_t seed);

}  // namespace gapless::testing
