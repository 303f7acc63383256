// The bugs that an overlap scheduler gets, each planted through the seams of fault.h.
#pragma once

#include <memory>
#include <vector>

#include "scheduler/sim_testing/fault.h"
#include "scheduler/sim_testing/workload.h"

namespace gapless::sim_testing {

struct PlantedFault {
  const char* name;
  Flavour flavour;  // of the workloads that meet it
  int32_t within;   // seeds 1 .. within: at least one of them must catch it
  std::unique_ptr<Fault> (*make)(const Workload& workload);
};

const std::vector<PlantedFault>& planted_faults();

}  // namespace gapless::sim_testing
