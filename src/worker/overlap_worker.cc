#include "worker/overlap_worker.h"

namespace gapless {

OverlapWorker::~OverlapWorker() {
  queue_.close();
  thread_.join();
  while (forward_one()) {
  }
}

void OverlapWorker::start() {
  thread_ = NamedThread("forward", [this] { forward_thread(); });
}

PendingForward OverlapWorker::forward_batch_generation(Frozen<ModelWorkerBatch> batch) {
  std::shared_ptr<LaunchState> launch = ModelRunner::new_launch(*batch);
  const bool queued = queue_.try_push({launch, std::move(batch)});
  CHECK(queued, "the forward thread has ended");
  return PendingForward(std::move(launch));
}

void OverlapWorker::forward_thread() {
  while (std::optional<Job> job = queue_.pop()) forward(std::move(*job));
}

bool OverlapWorker::forward_one() {
  if (queue_.size() == 0) return false;
  forward(*queue_.pop());
  return true;
}

void OverlapWorker::forward(Job job) {
  if (job.launch->recalled()) return;  // it costs nothing then
  runner_.launch(std::move(job.launch), std::move(job.batch));
}

}  // namespace gapless
