#include "model/testing/model_harness.h"

#include <algorithm>

#include "device/registry.h"
#include "model/registry.h"

namespace gapless::testing {
namespace {

constexpr int32_t kLogitRows = 32;  // computed at once: Gemma's rows are 1 MB each

}  // namespace

Result<std::unique_ptr<ModelHarness>> ModelHarness::create(const GgufFile& file,
                                                           const HarnessOptions& options) {
  CHECK(options.table != nullptr);
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                   make_device("cpu", {.threads = std::max(1, options.threads)}));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, load_model(file, *device));
  RETURN_IF_ERROR(model->reserve(*device, std::max(options.max_rows, kLogitRows)));
  std::unique_ptr<ModelHarness> harness(new ModelHarness(std::move(device), std::move(model), options));
  RETURN_IF_ERROR(harness->allocate());
  return harness;
}

ModelHarness::ModelHarness(std::unique_ptr<Device> device, std::unique_ptr<Model> model,
                           const HarnessOptions& options)
    : device_(std::move(device)), model_(std::move(model)), options_(options) {}

// Page 0 stays unused, as in the server; page p of slot s is 1 + p * slots + s, so that the pages of a
// sequence are not neighbours.
Status ModelHarness::allocate() {
  const ModelConfig& c = model_->config();
  const int32_t pages = (options_.max_tokens + options_.page_size - 1) / options_.page_size;
  const int64_t layer_stride = (int64_t(pages) * options_.slots + 1) * c.n_kv_heads * options_.page_size *
                               kv_row_bytes(options_.kv_dtype, c.head_dim);
  const size_t bytes = size_t(layer_stride) * size_t(c.n_layers);
  ASSIGN_OR_RETURN(k_, device_->allocate(bytes, MemoryKind::kDevice));
  ASSIGN_OR_RETURN(v_, device_->allocate(bytes, MemoryKind::kDevice));
  if (options_.threads > 0) stream_ = device_->create_stream();
  ASSIGN_OR_RETURN(scratch_, device_->allocate(kOpScratchBytes, MemoryKind::kDevice));
  page_table_.resize(size_t(pages) * size_t(options_.slots));
  for (int32_t slot = 0; slot < options_.slots; ++slot) {
    for (int32_t p = 0; p < pages; ++p) page_table_[size_t(slot * pages + p)] = 1 + p * options_.slots + slot;
  }
  kv_ = {k_.as<std::byte>(), v_.as<std::byte>(), layer_stride, options_.kv_dtype,
         options_.page_size, page_table_.data(), pages};
  return {};
}

ForwardInputs ModelHarness::prepare(std::span<const HarnessRow> rows) {
  CHECK_LE(rows.size(), size_t(options_.max_rows));
  ids_.clear(), positions_.clear(), slots_.clear(), logit_rows_.clear(), tiles_.clear();
  for (const HarnessRow& row : rows) {
    CHECK(row.slot < options_.slots && row.position < options_.max_tokens, "slot {} position {}", row.slot,
          row.position);
    const auto index = int32_t(ids_.size());
    const bool extends = !tiles_.empty() && tiles_.back().slot == row.slot &&
                         tiles_.back().rows < kAttentionTileRows &&
                         tiles_.back().pos_begin + tiles_.back().rows == row.position;
    if (extends) {
      ++tiles_.back().rows;
    } else {
      tiles_.push_back({row.slot, index, 1, row.position});
    }
    ids_.push_back(row.id);
    positions_.push_back(row.position);
    slots_.push_back(row.slot);
    logit_rows_.push_back(index);
  }
  n_rows_ = int32_t(rows.size());
  n_tiles_ = int32_t(tiles_.size());
  return {.n_rows = &n_rows_,
          .max_rows = n_rows_,
          .ids = ids_.data(),
          .positions = positions_.data(),
          .slots = slots_.data(),
          .tiles = tiles_.data(),
          .n_tiles = &n_tiles_,
          .max_tiles = n_tiles_,
          .logit_rows = logit_rows_.data(),
          .n_logit_rows = &n_rows_};
}

void ModelHarness::execute(std::unique_ptr<OpList> ops) {
  if (stream_) {
    const Status status = stream_->submit(std::move(ops))->wait();
    CHECK(status.is_ok(), "{}", status.message());
    return;
  }
  OpContext context{.worker = 0,
                    .scratch = {scratch_.as<std::byte>(), kOpScratchBytes},
                    .fail_fn = [](OpContext&, Status status) { CHECK(false, "{}", status.message()); }};
  for (const Op& op : ops->ops()) {
    const int32_t chunks = op.chunks(op.params);
    for (int32_t chunk = 0; chunk < chunks; ++chunk) op.run(op.params, chunk, context);
  }
}

void ModelHarness::step(std::span<const HarnessRow> rows, const OnLogits& on_logits) {
  const ForwardInputs in = prepare(rows);
  auto ops = std::make_unique<OpList>();
  model_->forward(*ops, *options_.table, in, kv_);
  execute(std::move(ops));
  if (!on_logits) return;
  const int64_t ld = (model_->config().vocab_size + 15) / 16 * 16;
  std::vector<float> logits(size_t(std::min(n_rows_, kLogitRows) * ld));
  for (int32_t begin = 0; begin < n_rows_; begin += kLogitRows) {
    ops = std::make_unique<OpList>();
    model_->logits(*ops, *options_.table, in, begin, kLogitRows, logits.data(), ld);
    execute(std::move(ops));
    for (int32_t i = begin; i < std::min(n_rows_, begin + kLogitRows); ++i) {
      on_logits(size_t(i), {logits.data() + (i - begin) * ld, size_t(model_->config().vocab_size)});
    }
  }
}

void ModelHarness::for_each_logits(std::span<const int32_t> ids, int32_t chunk, int32_t slot,
                                   const OnLogits& on_logits) {
  for (size_t begin = 0; begin < ids.size(); begin += size_t(chunk)) {
    std::vector<HarnessRow> rows;
    for (size_t i = begin; i < std::min(ids.size(), begin + size_t(chunk)); ++i)
      rows.push_back({slot, int32_t(i), ids[i]});
    step(rows, [&](size_t row, std::span<const float> logits) { on_logits(begin + row, logits); });
  }
}

std::vector<std::vector<float>> ModelHarness::run(std::span<const int32_t> ids, int32_t chunk, int32_t slot) {
  std::vector<std::vector<float>> all;
  for_each_logits(ids, chunk, slot, [&](size_t, std::span<const float> logits) {
    all.emplace_back(logits.begin(), logits.end());
  });
  return all;
}

std::vector<int32_t> ModelHarness::greedy(std::span<const int32_t> prompt, int32_t count, int32_t slot) {
  int32_t next = 0;
  const auto pick = [&](size_t, std::span<const float> logits) {
    next = int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  };
  for_each_logits(prompt, options_.max_rows, slot, pick);
  std::vector<int32_t> tokens;
  while (int32_t(tokens.size()) < count) {
    const HarnessRow row{slot, int32_t(prompt.size() + tokens.size()), next};
    tokens.push_back(next);
    if (int32_t(tokens.size()) < count) step({&row, 1}, pick);
  }
  return tokens;
}

}  // namespace gapless::testing
