// A place for a planted fault: what a test may change in a step on its way from the scheduler through the
// worker to the device. Production code knows nothing of it.
#pragma once

#include "scheduler/sim_testing/peer.h"
#include "worker/step.h"

namespace gapless::sim_testing {

// Everything happens on one thread: runs with a fault are stepped.
class Fault {
 public:
  virtual ~Fault() = default;

  // Scheduler.
  virtual void before_step(SchedulerTestPeer&) {}
  virtual void after_step(SchedulerTestPeer&) {}
  virtual void at_launch(SchedulerTestPeer&) {}
  virtual void edit(ModelWorkerBatch&) {}  // before it is frozen

  // Worker: the step has been queued behind those before it.
  virtual void on_submit(const TakeParams&) {}

  // Device: around the ops of those names. A launch that was recalled has no after_take.
  virtual void before_take(const TakeParams&) {}
  virtual void after_take(const TakeParams&) {}
  virtual void before_masks(const TakeParams&) {}
  virtual void after_commit(const TakeParams&) {}
  // Whether the event of a step is set when its last op is done, although results have not been copied yet.
  virtual bool event_before_copies() const { return false; }
};

}  // namespace gapless::sim_testing
