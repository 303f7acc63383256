// The time of a machine that does not exist: when a step begins and how long it takes. Pure arithmetic on
// seconds of the steady clock.
#pragma once

#include <algorithm>

#include "device/device.h"
#include "device/sim/sim_profile.h"

namespace gapless {

class SimClock {
 public:
  explicit SimClock(const SimMachine& machine) : machine_(machine) {}

  // Steps run one after another; an idle device needs the launch latency first.
  double start(double submitted) const { return std::max(end_, submitted + machine_.launch_latency); }
  // Roofline: whatever takes longer, moving the bytes or doing the arithmetic.
  double cost(const OpWork& work) const {
    return std::max(work.bytes / machine_.bytes_per_second, work.flops / machine_.flops_per_second) +
           machine_.step_overhead;
  }
  // Of the step that began at `start`. own_work_done: when the step's ops were really done, which may be
  // late.
  double end(double start, double cost, double own_work_done) {
    return end_ = std::max(start + cost, own_work_done);
  }

 private:
  const SimMachine machine_;
  double end_ = 0;  // of the last step
};

}  // namespace gapless
