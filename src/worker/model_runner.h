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

// Owner: the forward side: the forward thread in the overlap loop, the scheduler thread in the normal loop;
// it changes hands while nothing is launched. Device memory it allocates: KV pool, page table, future map,
// two steps, logits of one group of rows.
class ModelRunner {
 public:
  // `device`, `model` and `table` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(Device& device, Model& model, const OpTable& table,
                                                     ModelRunnerOptions options);
  ~ModelRunner();

  // The state of a launch to come. Any thread.
  static std::shared_ptr<LaunchState> new_launch(const ModelWorkerBatch& batch);
  // Queues the batch on the stream and returns at once. At most kMaxOutstanding launches may be without a
  // taken result; one that was recalled gives its place to the next. The sampling of masked rows is not
  // queued yet: that is sample_masked_rows(), which comes before the next launch.
  void launch(std::shared_ptr<LaunchState> launch, Frozen<ModelWorkerBatch> batch);
  // Queues the rest of the last launch, whose masked rows fail without `info`. Nothing happens if the launch
  // was recalled.
  void sample_masked_rows(std::shared_ptr<LaunchState> launch, std::optional<SamplingInfo> info);

  // A page that the host has given back: on a device that poisons, whoever reads it still gets nonsense. Any
  // thread; no launched batch names the page.
  void poison_page(int32_t page);

  // Stream::set_profile, with the forward mode as the kind of a step and its tokens as its rows. Any thread.
  bool set_profile(OpProfile* profile) { return stream_->set_profile(profile); }
  // Everything launched so far has completed.
  void synchronize() { stream_->synchronize(); }

  // Bytes of KV memory that have been allocated (committed only when touched).
  size_t kv_bytes() const { return kv_memory_.bytes(); }

 private:
  ModelRunner(Device& device, Model& model, const OpTable& table, ModelRunnerOptions options);
  Status allocate();
  void check_batch(const ModelWorkerBatch& batch) const;
  TakeParams take_params(LaunchState& launch);
  void push_first_step(OpList& ops, Step& step, LaunchState& launch);
  void push_second_step(OpList& ops, Step& step, LaunchState& launch);
  void push_head(OpList& ops, const Step& step, const LogitRange& range, int32_t begin);
  void push_sampler(OpList& ops, const Step& step, const LogitRange& range, int32_t begin,
                    int32_t logits_row);
  bool has_one_head(const Step& step) const;
  void push_results(OpList& ops, const Step& step, const TakeParams& take);
  size_t next_place();
  KvView kv_view() const;

  Device& device_;
  Model& model_;
  const OpTable& table_;
  const ModelRunnerOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sampler> sampler_;
  Buffer kv_memory_, page_table_, future_map_, slot_states_, pooled_, logits_;
  DeviceSlots slots_{};
  int64_t kv_layer_stride_ = 0;  // bytes
  int32_t logit_group_ = 0;      // rows of logits held at once
  int64_t ld_logits_ = 0;

  // The ring that keeps the last batches alive: a place is reused only after its result was taken.
  std::array<std::unique_ptr<Step>, kMaxOutstanding> ring_;
  std::array<std::shared_ptr<LaunchState>, kMaxOutstanding> ring_launches_;
  size_t last_place_ = 0;
};

// The normal loop's worker: launches on the caller's thread.
class ModelWorker : public ModelWorkerClient {
 public:
  // The runner must outlive the worker.
  explicit ModelWorker(ModelRunner& runner) : runner_(runner) {}
  PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override;

 private:
  ModelRunner& runner_;
};

}  // namespace gapless
