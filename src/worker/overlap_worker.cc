#include "worker/overlap_worker.h"

#include "base/trace_names.h"

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
  SamplingInfoDone sampling_info_done;
  if (has_masked_rows(*batch)) {
    sampling_info_done = [this, launch](std::optional<SamplingInfo> info) {
      push({launch, std::nullopt, std::move(info)});
    };
  }
  push({launch, std::move(batch), std::nullopt});
  return PendingForward(std::move(launch), std::move(sampling_info_done));
}

void OverlapWorker::push(Job job) {
  const bool queued = queue_.try_push(std::move(job));
  CHECK(queued, "the forward thread has ended");
}

void OverlapWorker::forward_thread() {
  const auto next_job = [this] {
    const TraceSpan wait(trace_, trace::kForwardWait);
    return queue_.pop();
  };
  while (std::optional<Job> job = next_job()) forward(std::move(*job));
}

bool OverlapWorker::forward_one() {
  if (queue_.size() == 0) return false;
  forward(*queue_.pop());
  return true;
}

void OverlapWorker::forward(Job job) {
  if (job.launch->recalled()) return;  // it costs nothing then
  TraceSpan plan(trace_, trace::kPlan);
  plan.set_args(int64_t(job.launch->batch_id));
  if (job.batch) {
    plan.set_args(int64_t(job.launch->batch_id), int64_t((*job.batch)->rows.size()),
                  int64_t((*job.batch)->input_ids.size()));
    runner_.launch(std::move(job.launch), std::move(*job.batch));
  } else {
    runner_.sample_masked_rows(std::move(job.launch), std::move(job.info));
  }
}

}  // namespace gapless
