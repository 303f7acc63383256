#include "scheduler/testing/fake_worker.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/testing/fake_model.h"
#include "worker/launch_state.h"

namespace gapless::testing {

struct FakeWorker::Launch : LaunchState {
  explicit Launch(Frozen<ModelWorkerBatch> b) : LaunchState(b->id), batch(std::move(b)) {}
  BatchResult collect(Status status) override {
    result.status = std::move(status);
    return std::move(result);
  }
  Frozen<ModelWorkerBatch> batch;
  BatchResult result;
};

FakeWorker::FakeWorker(const SchedulerConfig& config)
    : config_(config),
      pages_(size_t(config.max_total_pages()) + 1, std::vector<Cell>(config.page_size)),
      page_table_(config.request_slots(), std::vector<int32_t>(config.max_pages_per_request())),
      slots_(config.request_slots()) {}

FakeWorker::~FakeWorker() = default;

PendingForward FakeWorker::forward_batch_generation(Frozen<ModelWorkerBatch> batch) {
  if (batch->id <= last_id_) error("batch {} after {}", batch->id, last_id_);
  last_id_ = batch->id;
  // It can go to another process: what arrives there is what was sent.
  if (from_bytes(to_bytes(*batch)) != *batch) error("batch {} does not survive its bytes", batch->id);
  auto launch = std::make_shared<Launch>(std::move(batch));
  std::erase_if(outstanding_, [](const auto& l) { return l->collected || l->recalled(); });
  outstanding_.push_back(launch);
  if (outstanding_.size() > kMaxOutstanding) error("{} launches outstanding", outstanding_.size());
  launched_.push_back(launch);
  if (!held_) run_one();
  return PendingForward(launch);
}

bool FakeWorker::run_one() {
  while (!launched_.empty()) {
    const std::shared_ptr<Launch> launch = launched_.front();
    launched_.pop_front();
    if (!launch->try_take()) continue;
    run(*launch);
    return true;
  }
  return false;
}

void FakeWorker::run(Launch& launch) {
  const ModelWorkerBatch& batch = *launch.batch;
  Step& step = steps_.emplace_back(Step{.mode = batch.mode, .rows = int32_t(batch.rows.size())});
  launch.result.batch_id = batch.id;
  if (!fail_.empty()) {
    step.failed = true;
    // Who was to be admitted is not known to the device: rows of theirs that are launched already fail there.
    for (const SlotInit& init : batch.slot_inits) slots_.at(init.slot) = {};
    launch.copy_done.set(fail_.front());
    fail_.pop_front();
    return;
  }
  apply(batch);
  count(batch, step);
  std::vector<RowResult>& results = launch.result.rows;
  for (const BatchRow& row : batch.rows) {
    int32_t first_id = batch.input_ids.at(row.input_begin);
    results.emplace_back().status = take_row(row, first_id);
    if (results.back().status == RowStatus::kOk) write_row(batch, row, first_id);
  }
  for (size_t i = 0; i < results.size(); i++) {
    if (results[i].status == RowStatus::kOk) results[i] = read_row(batch, batch.rows[i]);
    step.dropped_rows += results[i].status == RowStatus::kDropped;
    step.failed_rows += results[i].status == RowStatus::kFailed;
  }
  launch.copy_done.set();
}

void FakeWorker::count(const ModelWorkerBatch& batch, Step& step) const {
  for (const BatchRow& row : batch.rows) {
    if (slots_[row.slot].emitted > 0) {
      step.decode_rows++;
    } else {
      step.prefill_tokens += row.n_tokens;
    }
  }
}

void FakeWorker::apply(const ModelWorkerBatch& batch) {
  for (const SlotInit& init : batch.slot_inits) {
    if (init.slot <= 0 || init.slot >= int32_t(slots_.size())) {
      error("batch {}: slot {}", batch.id, init.slot);
      continue;
    }
    Slot& slot = slots_[init.slot];
    slot = {.epoch = init.epoch,
            .kv_end = init.cached_tokens,
            .params = init.params,
            .known = init.prompt_ids,
            .prompt_len = int32_t(init.prompt_ids.size())};
    slot.known.insert(slot.known.end(), init.output_ids.begin(), init.output_ids.end());
    std::ranges::fill(page_table_[init.slot], kDumpPage);
  }
  for (const PageWrite& write : batch.page_writes) {
    if (slots_.at(write.slot).epoch == 0) continue;  // its admission failed
    int32_t& entry = page_table_[write.slot].at(write.index);
    if (entry != kDumpPage)
      error("batch {}: row of slot {} is rewritten at {}", batch.id, write.slot, write.index);
    if (write.page < 1 || write.page >= int32_t(pages_.size()))
      error("batch {}: page {}", batch.id, write.page);
    entry = write.page;
  }
}

FakeWorker::Cell* FakeWorker::cell(const BatchRow& row, int32_t pos) {
  const int32_t page = page_table_[row.slot].at(pos / config_.page_size);
  if (page == kDumpPage) {
    error("slot {} has no page for position {}", row.slot, pos);
    return nullptr;
  }
  return &pages_[page][pos % config_.page_size];
}

RowStatus FakeWorker::take_row(const BatchRow& row, int32_t& first_id) const {
  const Slot& slot = slots_.at(row.slot);
  if (slot.epoch != row.epoch || slot.kv_end != row.start_pos) return RowStatus::kFailed;
  if (!is_placeholder(first_id)) return RowStatus::kOk;
  const int32_t outputs = int32_t(slot.known.size()) - slot.prompt_len;
  if (placeholder_slot(first_id) != row.slot || row.output_index != outputs || outputs == 0)
    return RowStatus::kFailed;
  first_id = slot.known.back();
  const TokenEnd end = ends_by_token(slot.params, config_.eos_ids, outputs - 1, first_id);
  return end == TokenEnd::kNo ? RowStatus::kOk : RowStatus::kDropped;
}

void FakeWorker::write_row(const ModelWorkerBatch& batch, const BatchRow& row, int32_t first_id) {
  const Slot& slot = slots_[row.slot];
  for (int32_t i = 0; i < row.n_tokens; i++) {
    const int32_t pos = row.start_pos + i;
    const int32_t id = i == 0 ? first_id : batch.input_ids.at(row.input_begin + i);
    if (is_placeholder(id)) error("batch {}: a placeholder for slot {}", batch.id, placeholder_slot(id));
    if (pos >= int32_t(slot.known.size()) || slot.known[pos] != id) {
      error("batch {}: slot {} gets {} at position {}", batch.id, row.slot, id, pos);
    }
    Cell* c = cell(row, pos);
    if (!c) continue;
    if (c->id >= 0)
      error("batch {}: position {} of slot {} is written into a page in use", batch.id, pos, row.slot);
    *c = {id, batch.id};
  }
}

RowResult FakeWorker::read_row(const ModelWorkerBatch& batch, const BatchRow& row) {
  RowResult result;
  Slot& slot = slots_[row.slot];
  slot.kv_end = row.start_pos + row.n_tokens;
  std::vector<int32_t> context;
  for (int32_t pos = 0; pos < row.start_pos + row.n_tokens; pos++) {
    const Cell* c = cell(row, pos);
    if (!c) return result;
    context.push_back(c->id);
    if (c->id != slot.known[pos]) {
      error("batch {}: slot {} reads {} at {}, should be {}", batch.id, row.slot, c->id, pos,
            slot.known[pos]);
    }
    if (pos < row.start_pos && c->batch >= batch.id) {
      error("batch {}: slot {} reads position {} that the same step writes", batch.id, row.slot, pos);
    }
  }
  for (int32_t i = 0; i < row.n_targets; i++) {
    const int32_t pos = row.prompt_logprob_begin + i, target = batch.prompt_targets.at(row.targets_begin + i);
    if (pos + 1 >= slot.prompt_len || target != slot.known[pos + 1])
      error("batch {}: target {} at {}", batch.id, target, pos);
    result.prompt_logprobs.push_back(logprob_of(std::span(context).first(pos + 1), target));
    result.prompt_top.push_back({{target, result.prompt_logprobs.back()}});
  }
  if (!row.emits) return result;
  const std::span<const int32_t> outputs = std::span(slot.known).subspan(slot.prompt_len);
  if (row.output_index != int32_t(outputs.size())) {
    error("batch {}: slot {} emits token {}, has {}", batch.id, row.slot, row.output_index, outputs.size());
  }
  result.token = next_token(context, outputs, slot.params, config_.eos_ids, config_.vocab_size);
  result.logprob = logprob_of(context, result.token);
  if (slot.params.top_logprobs > 0) result.top = {{result.token, result.logprob}};
  slot.known.push_back(result.token);
  slot.emitted++;
  return result;
}

void FakeWorker::poison(int32_t page) {
  std::ranges::fill(pages_.at(page), Cell{});
}

int64_t FakeWorker::prefill_tokens() const {
  int64_t n = 0;
  for (const Step& step : steps_) n += step.prefill_tokens;
  return n;
}

int32_t FakeWorker::count_steps(ForwardMode mode) const {
  return int32_t(std::ranges::count_if(steps_, [mode](const Step& s) { return s.mode == mode; }));
}

}  // namespace gapless::testing
