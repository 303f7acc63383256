// The forward side as the scheduler sees it: launch a frozen batch, get a ticket.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/frozen.h"
#include "device/device.h"
#include "sampling/sampling_info.h"
#include "worker/model_worker_batch.h"

namespace gapless {

// Host side of one launch, shared between the ticket and the forward side until the result is taken. Written
// by the device before copy_done; not read by the host before it.
struct LaunchState;

// `sampling_info_done`: hands over, once, what the masked rows of a launch wait for; nullopt: it will never
// come, and they fail. Scheduler thread; never blocks.
using SamplingInfoDone = std::function<void(std::optional<SamplingInfo>)>;

// The ticket of one launch. Move-only; owned by the scheduler thread; its result is taken exactly once,
// before the worker ends.
class [[nodiscard]] PendingForward {
 public:
  // sampling_info_done: of a batch with masked rows.
  explicit PendingForward(std::shared_ptr<LaunchState> state, SamplingInfoDone sampling_info_done = {});
  PendingForward(PendingForward&&) noexcept = default;
  PendingForward& operator=(PendingForward&&) noexcept = default;
  ~PendingForward();  // CHECKs that the result was taken

  uint64_t batch_id() const;
  Event& launch_done() const;  // the device has taken the batch: it can no longer be recalled
  Event& copy_done() const;    // results are in host memory
  // Whether masked rows wait for set_sampling_info().
  bool waits_for_sampling_info() const { return bool(sampling_info_done_); }
  // Once, before the next batch is launched. Until then, or until take(), copy_done does not come: the model
  // part and the free rows are computed meanwhile, but nobody waits, so that no order of calls can deadlock.
  void set_sampling_info(SamplingInfo info);
  // Takes the batch back when the device has not begun with it: true, and nothing of it will ever be
  // computed. Consumes the ticket then. False: too late, the ticket stays as it is.
  bool try_recall();
  // Blocks until copy_done, then hands the result over. Consumes the ticket. Masked rows whose information
  // was not set fail.
  BatchResult take() &&;

 private:
  std::shared_ptr<LaunchState> state_;
  SamplingInfoDone sampling_info_done_;  // empty once called
};

// Launches that may be without a taken result: the batch that is computed and the one prepared behind it. The
// queue and the ring are this long; nothing else depends on it. A recalled launch does not count.
inline constexpr size_t kMaxOutstanding = 2;

// Called by the scheduler thread.
class ModelWorkerClient {
 public:
  virtual ~ModelWorkerClient() = default;
  // Returns at once; the device computes meanwhile. Batches complete in launch order.
  virtual PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) = 0;
};

}  // namespace gapless
