// A model runner over the hash model, and batches by hand.
#pragma once

#include <gtest/gtest.h>

#include "base/trace.h"
#include "device/registry.h"
#include "worker/model_runner.h"
#include "worker/testing/hash_model.h"

namespace gapless::testing {

inline constexpr int32_t kPages = 64, kEos = 7, kSeqs = 8;

inline SamplingParams greedy(int32_t max_tokens = 16) {
  SamplingParams p;
  p.temperature = 0;
  p.max_tokens = max_tokens;
  return p;
}

inline std::unique_ptr<ModelRunner> make_hash_runner(Device& device, Model& model, const OpTable& table,
                                                     int32_t seqs = kSeqs) {
  return ModelRunner::create(device, model, table,
                             {.limits = {.max_rows = 160, .max_seqs = seqs},
                              .request_slots = 2 * seqs + 1,
                              .max_pages_per_request = 32,
                              .total_pages = std::max(kPages, seqs),
                              .page_size = kPageSize,
                              .kv_dtype = KvDtype::kF16,
                              .eos_ids = {kEos}})
      .value();
}

class WorkerFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = make_device("cpu", {.threads = 1}).value();
    runner_ = make_hash_runner(*device_, model_, table_);
  }

  ModelWorkerBatch batch(ForwardMode mode) {
    ModelWorkerBatch b;
    b.id = ++id_;
    b.mode = mode;
    return b;
  }
  // A prompt of one request in a slot of its own, four pages from first_page on.
  ModelWorkerBatch prefill(int32_t slot, std::vector<int32_t> ids, int32_t first_page,
                           SamplingParams params = greedy(), uint32_t epoch = 1) {
    ModelWorkerBatch b = batch(ForwardMode::kExtend);
    b.rows.push_back(
        {.slot = slot, .epoch = epoch, .n_tokens = int32_t(ids.size()), .start_pos = 0, .emits = true});
    for (int32_t i = 0; i < 4; i++) b.page_writes.push_back({slot, i, first_page + i});
    b.input_ids = ids;
    SlotInit init;
    init.slot = slot;
    init.epoch = epoch;
    init.params = std::move(params);
    init.prompt_ids = std::move(ids);
    b.slot_inits.push_back(std::move(init));
    return b;
  }
  ModelWorkerBatch decode(int32_t slot, int32_t input, int32_t pos, int32_t output_index,
                          uint32_t epoch = 1) {
    ModelWorkerBatch b = batch(ForwardMode::kDecode);
    b.input_ids = {input};
    b.rows.push_back({.slot = slot,
                      .epoch = epoch,
                      .n_tokens = 1,
                      .start_pos = pos,
                      .emits = true,
                      .output_index = output_index});
    return b;
  }
  // Both batches as one; `b` is used up.
  static ModelWorkerBatch join(ModelWorkerBatch a, const ModelWorkerBatch& b) {
    a.mode = ForwardMode::kMixed;
    for (BatchRow row : b.rows) {
      row.input_begin += int32_t(a.input_ids.size());
      a.rows.push_back(row);
    }
    a.input_ids.insert(a.input_ids.end(), b.input_ids.begin(), b.input_ids.end());
    a.page_writes.insert(a.page_writes.end(), b.page_writes.begin(), b.page_writes.end());
    a.slot_inits.insert(a.slot_inits.end(), b.slot_inits.begin(), b.slot_inits.end());
    return a;
  }
  static PendingForward launch(ModelWorkerClient& worker, ModelWorkerBatch b) {
    return worker.forward_batch_generation(Frozen(std::move(b)));
  }

  HashModel model_;
  OpTable table_{};
  std::unique_ptr<Device> device_;
  std::unique_ptr<ModelRunner> runner_;
  TraceRing trace_{"forward", 64};
  uint64_t id_ = 0;
};

}  // namespace gapless::testing
