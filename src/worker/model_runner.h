// Plans a frozen batch into a list of ops and queues it on the stream: the one place where model, sampler,
// paged KV cache and future map meet.
#pragma once

#include <array>
#include <memory>

#include "worker/model_worker.h"
#include "worker/step.h"

namespace gapless {

struct ModelRunnerOptions {
  StepLimits limits;
  int32_t request_slots = 0;  // with the dump slot
  int32_t max_pages_per_request = 0;
  int32_t total_pages = 0;  // usable pages; page 0 comes on top
  int32_t page_size = 0;
  KvDtype kv_dtype = KvDtype::kF16;
  std::vector<int32_t> eos_ids;  // ascending
};

// Owner: the forward side (the scheduler thread in the normal loop). Device memory it allocates: KV pool,
// page table, future map, two steps, logits of one group of rows.
class ModelRunner {
 public:
  // `device`, `model` and `table` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(Device& device, Model& model, const OpTable& table,
                                                     ModelRunnerOptions options);
  ~ModelRunner();

  // Queues the batch and returns at once. At most two launches may be without a taken result.
  std::shared_ptr<LaunchState> launch(Frozen<ModelWorkerBatch> batch);

  // Bytes of KV memory that have been allocated (committed only when touched).
  size_t kv_bytes() const { return kv_memory_.bytes(); }

 private:
  ModelRunner(Device& device, Model& model, const OpTable& table, ModelRunnerOptions options);
  Status allocate();
  void check_batch(const ModelWorkerBatch& batch) const;
  void plan(OpList& ops, Step& step, HostEvent& launch_done);
  KvView kv_view() const;

  Device& device_;
  Model& model_;
  const OpTable& table_;
  const ModelRunnerOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sampler> sampler_;
  Buffer kv_memory_, page_table_, future_map_, slot_states_, logits_;
  DeviceSlots slots_{};
  int64_t kv_layer_stride_ = 0;
  int32_t logit_group_ = 0;  // rows of logits held at once
  int64_t ld_logits_ = 0;

  // The ring that keeps the last two batches alive: a place is reused only after its result was taken.
  std::array<std::unique_ptr<Step>, 2> ring_;
  std::array<std::weak_ptr<LaunchState>, 2> ring_tickets_;
  uint64_t launches_ = 0;
};

// The normal loop's worker: launches on the caller's thread.
class ModelWorker : public ModelWorkerClient {
 public:
  explicit ModelWorker(std::unique_ptr<ModelRunner> runner) : runner_(std::move(runner)) {}
  PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override {
    return PendingForward(runner_->launch(std::move(batch)));
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace gapless
