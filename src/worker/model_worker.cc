#include "worker/model_worker.h"

#include "worker/launch_state.h"

namespace gapless {

PendingForward::PendingForward(std::shared_ptr<LaunchState> state, SamplingInfoDone sampling_info_done)
    : state_(std::move(state)), sampling_info_done_(std::move(sampling_info_done)) {
  CHECK(state_ != nullptr, "a ticket needs a launch");
}

PendingForward::~PendingForward() {
  CHECK(!state_, "result of batch {} was never taken", state_->batch_id);
}

uint64_t PendingForward::batch_id() const {
  return state_->batch_id;
}
Event& PendingForward::launch_done() const {
  return state_->launch_done;
}
Event& PendingForward::copy_done() const {
  return state_->copy_done;
}

void PendingForward::set_sampling_info(SamplingInfo info) {
  CHECK(sampling_info_done_, "no row of batch {} waits for sampling information", state_->batch_id);
  std::exchange(sampling_info_done_, {})(std::move(info));
}

bool PendingForward::try_recall() {
  if (!state_->try_recall()) return false;
  state_.reset();
  sampling_info_done_ = {};
  return true;
}

BatchResult PendingForward::take() && {
  if (sampling_info_done_) std::exchange(sampling_info_done_, {})(std::nullopt);
  std::shared_ptr<LaunchState> state = std::move(state_);
  Status status = state->copy_done.wait();
  BatchResult result = state->collect(std::move(status));
  result.times = state->copy_done.times();
  state->collected.store(true, std::memory_order_release);
  return result;
}

}  // namespace gapless
