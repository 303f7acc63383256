// The overlap loop's worker: plans and queues launches on a thread of its own, so that the scheduler gets its
// ticket at once and goes on thinking.
#pragma once

#include "base/queue.h"
#include "base/thread.h"
#include "base/trace.h"
#include "worker/model_runner.h"

namespace gapless {

// forward_batch_generation: scheduler thread; never blocks. A launch with masked rows is two jobs, and the
// second one is queued when its sampling information is there: so the forward thread waits for its queue
// alone, and a launch that is recalled meanwhile needs nobody to be woken. The forward thread owns the runner
// from the first launch on, until all launches are collected.
class OverlapWorker : public ModelWorkerClient {
 public:
  // The runner and the ring must outlive the worker; the forward thread writes the ring. Without start()
  // nothing is launched but by forward_one().
  OverlapWorker(ModelRunner& runner, TraceRing& trace) : runner_(runner), trace_(trace) {}
  // Launches what is queued, then joins. Tickets whose rows still wait for sampling information must not
  // outlive it.
  ~OverlapWorker() override;

  void start();

  PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override;
  // The forward thread's work on one job, for a test that drives it from its own thread. False: the queue
  // is empty.
  bool forward_one();

 private:
  struct Job {
    std::shared_ptr<LaunchState> launch;
    std::optional<Frozen<ModelWorkerBatch>> batch;  // unset: the launch's masked rows, with
    std::optional<SamplingInfo> info;
  };
  void push(Job job);
  void forward_thread();
  void forward(Job job);

  ModelRunner& runner_;
  TraceRing& trace_;
  // Jobs of two outstanding launches, and of recalled ones that the thread has not come across yet.
  Queue<Job> queue_;
  NamedThread thread_;
};

}  // namespace gapless
