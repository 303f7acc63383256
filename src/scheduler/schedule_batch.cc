#include "scheduler/schedule_batch.h"

#include <algorithm>

#include "base/check.h"

namespace gapless {

ForwardMode ScheduleBatch::mode() const {
  if (rows_.empty()) return ForwardMode::kIdle;
  if (n_prefill_ == 0) return ForwardMode::kDecode;
  return n_prefill_ == int32_t(rows_.size()) ? ForwardMode::kExtend : ForwardMode::kMixed;
}

bool ScheduleBatch::has_masked_rows() const {
  return std::ranges::any_of(rows_, &ScheduledRow::masked);
}

void ScheduleBatch::init_slot(const Req& req, const KvMemory& memory) {
  const int32_t slot = req.held.slot.id();
  const auto output = req.ids.begin() + req.prompt_len;
  slot_inits_.push_back(
      {slot, req.epoch, req.params, req.kv_launched, {req.ids.begin(), output}, {output, req.ids.end()}});
  const auto row = memory.rows.row(slot);
  for (size_t i = 0; i < row.size(); i++) page_writes_.push_back({slot, int32_t(i), row[i]});
}

void ScheduleBatch::add_page_write(const Req& req, const KvMemory& memory) {
  const int32_t slot = req.held.slot.id();
  const auto row = memory.rows.row(slot);
  page_writes_.push_back({slot, int32_t(row.size()) - 1, row.back()});
}

void ScheduleBatch::add_prefill(Req& req, int32_t n_tokens) {
  const int32_t start = req.kv_launched, end = start + n_tokens;
  CHECK(n_tokens > 0 && end <= req.len(), "{} tokens from {} on of {}", n_tokens, start, req.len());
  const bool completes = end == req.len();
  BatchRow row{.slot = req.held.slot.id(),
               .epoch = req.epoch,
               .input_begin = int32_t(input_ids_.size()),
               .n_tokens = n_tokens,
               .start_pos = start,
               .emits = completes && req.params.max_tokens > 0,
               .output_index = req.output_len()};
  row.masked = row.emits && req.grammar;
  input_ids_.insert(input_ids_.end(), req.ids.begin() + start, req.ids.begin() + end);
  add_prompt_targets(req, row);
  add_pooled(req, row);
  for (int32_t page = start / page_size_; (page + 1) * page_size_ <= end; page++) {
    pages_written_.push_back(req.page_hash(page, page_size_));
  }
  batch_rows_.push_back(row);
  rows_.push_back({.req = &req,
                   .epoch = req.epoch,
                   .prefill = true,
                   .completes = completes,
                   .emits = row.emits,
                   .masked = row.masked,
                   .end_pos = end,
                   .output_index = row.output_index});
  n_prefill_++;
}

void ScheduleBatch::add_prompt_targets(const Req& req, BatchRow& row) {
  if (!req.wants_prompt_logprobs()) return;
  const int32_t begin = std::max(req.request().prompt_logprob_begin, row.start_pos);
  const int32_t end = std::min(row.start_pos + row.n_tokens, req.prompt_len - 1);
  if (begin >= end) return;
  row.prompt_logprob_begin = begin;
  row.targets_begin = int32_t(prompt_targets_.size());
  row.n_targets = end - begin;
  prompt_targets_.insert(prompt_targets_.end(), req.ids.begin() + begin + 1, req.ids.begin() + end + 1);
}

void ScheduleBatch::add_pooled(const Req& req, BatchRow& row) {
  if (!req.wants_embedding()) return;
  const int32_t end = row.start_pos + row.n_tokens;
  row.pool_begin = req.request().embed_begin;
  row.n_pooled = std::clamp(end - row.pool_begin, 0, row.n_tokens);
  row.embeds = end == req.prompt_len;
}

void ScheduleBatch::reserve_rows(size_t more) {
  rows_.reserve(rows_.size() + more);
  batch_rows_.reserve(batch_rows_.size() + more);
  input_ids_.reserve(input_ids_.size() + more);
}

void ScheduleBatch::add_decode(Req& req) {
  const int32_t pos = req.kv_launched;
  // Exactly one token is pending: the one emitted last, whether its value has arrived or not.
  CHECK_EQ(pos, req.prompt_len + req.launched_outputs - 1);
  const int32_t slot = req.held.slot.id();
  batch_rows_.push_back({.slot = slot,
                         .epoch = req.epoch,
                         .input_begin = int32_t(input_ids_.size()),
                         .n_tokens = 1,
                         .start_pos = pos,
                         .emits = true,
                         .output_index = req.launched_outputs,
                         .masked = req.grammar != nullptr});
  input_ids_.push_back(pos < req.len() ? req.ids[pos] : placeholder(slot));
  rows_.push_back({.req = &req,
                   .epoch = req.epoch,
                   .prefill = false,
                   .completes = false,
                   .emits = true,
                   .masked = req.grammar != nullptr,
                   .end_pos = pos + 1,
                   .output_index = req.launched_outputs});
}

Frozen<ModelWorkerBatch> ScheduleBatch::freeze(uint64_t batch_id) const {
  CHECK(!rows_.empty(), "an empty batch is never launched");
  return Frozen<ModelWorkerBatch>({.id = batch_id,
                                   .mode = mode(),
                                   .rows = batch_rows_,
                                   .input_ids = input_ids_,
                                   .prompt_targets = prompt_targets_,
                                   .page_writes = page_writes_,
                                   .slot_inits = slot_inits_});
}

}  // namespace gapless
