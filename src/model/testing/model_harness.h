// Drives a model directly, without worker, scheduler or sampler: rows in, logits out. Operations run on the
// calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/ops.h"
#include "model/gguf.h"
#include "model/model.h"

namespace gapless::testing {

struct HarnessOptions {
  const OpTable* table = nullptr;  // required
  int32_t max_rows = 64;           // of a step
  int32_t slots = 4;
  int32_t max_tokens = 256;  // of a sequence
  int32_t page_size = 16;
  KvDtype kv_dtype = KvDtype::kF16;
  int threads = 0;  // of the device's stream; 0: operations run one by one on the calling thread
};

struct HarnessRow {
  int32_t slot, position, id;
};

class ModelHarness {
 public:
  static Result<std::unique_ptr<ModelHarness>> create(const GgufFile& file, const HarnessOptions& options);

  Model& model() { return *model_; }
  // One step. Rows of a slot must be consecutive and in order of position. on_logits is called for each row,
  // in order, with vocab_size logits; rows whose logits are not wanted are never computed.
  using OnLogits = std::function<void(size_t row, std::span<const float> logits)>;
  void step(std::span<const HarnessRow> rows, const OnLogits& on_logits);
  // All logits of a sequence in `slot`, positions from 0, cut into steps of at most `chunk` rows.
  std::vector<std::vector<float>> run(std::span<const int32_t> ids, int32_t chunk, int32_t slot = 0);
  void for_each_logits(std::span<const int32_t> ids, int32_t chunk, int32_t slot, const OnLogits& on_logits);
  // The tokens after `prompt`, each the one with the largest logit.
  std::vector<int32_t> greedy(std::span<const int32_t> prompt, int32_t count, int32_t slot = 0);

 private:
  ModelHarness(std::unique_ptr<Device> device, std::unique_ptr<Model> model, const HarnessOptions& options);
  Status allocate();
  ForwardInputs prepare(std::span<const HarnessRow> rows);
  void execute(std::unique_ptr<OpList> ops);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;  // null without threads
  std::unique_ptr<Model> model_;
  HarnessOptions options_;
  Buffer k_, v_, scratch_;
  std::vector<int32_t> page_table_, ids_, positions_, slots_, logit_rows_;
  std::vector<AttentionTile> tiles_;
  int32_t n_rows_ = 0, n_tiles_ = 0;
  KvView kv_{};
};

}  // namespace gapless::testing
