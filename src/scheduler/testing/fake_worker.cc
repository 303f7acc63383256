#include "scheduler/testing/fake_worker.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/testing/fake_model.h"
#include "worker/launch_state.h"

namespace gapless::testing {

struct FakeWorker::Launch : LaunchState {
  Launch(FakeWorker& worker, Frozen<ModelWorkerBatch> b)
      : LaunchState(b->id), worker(worker), batch(std::move(b)), bytes(to_bytes(*batch)) {}
  BatchResult collect(Status status) override {
    if (recalled()) worker.error("batch {} was recalled, and its result is taken", batch_id);
    result.status = std::move(status);
    return std::move(result);
  }
  FakeWorker& worker;
  Frozen<ModelWorkerBatch> batch;
  const std::vector<std::byte> bytes;  // as it was launched
  bool replaces_recalled = false;
  bool waits = false;  // for what its masked rows may emit
  SamplingInfo info;
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
  auto launch = std::make_shared<Launch>(*this, std::move(batch));
  // It can go to another process: what arrives there is what was sent.
  if (from_bytes(launch->bytes) != *launch->batch)
    error("batch {} does not survive its bytes", launch->batch_id);
  if (!outstanding_.empty() && outstanding_.back()->recalled()) check_relaunch(*launch);
  std::erase_if(outstanding_, [](const auto& l) { return l->collected || l->recalled(); });
  outstanding_.push_back(launch);
  max_outstanding_ = std::max(max_outstanding_, outstanding_.size());
  if (outstanding_.size() > kMaxOutstanding) error("{} launches outstanding", outstanding_.size());
  SamplingInfoDone sampling_info_done;
  if (has_masked_rows(*launch->batch)) {
    launch->waits = true;
    sampling_info_done = [this, launch](std::optional<SamplingInfo> info) {
      set_sampling_info(*launch, std::move(info));
    };
  }
  {
    std::lock_guard lock(mutex_);
    launched_.push_back(launch);
  }
  launched_or_stopped_.notify_one();
  if (!held_) run_one();
  return PendingForward(launch, std::move(sampling_info_done));
}

void FakeWorker::set_sampling_info(Launch& launch, std::optional<SamplingInfo> info) {
  {
    std::lock_guard lock(mutex_);
    if (!info) errors_.push_back(fmt::format("the masks of batch {} never come", launch.batch_id));
    if (info) launch.info = std::move(*info);
    launch.waits = false;
  }
  launched_or_stopped_.notify_one();
  if (!held_) run_one();
}

// A recalled batch comes back whole, with whatever its rows need to begin, and others behind them.
void FakeWorker::check_relaunch(Launch& launch) {
  launch.replaces_recalled = true;
  recalled_again_ += outstanding_.back()->replaces_recalled;
  const ModelWorkerBatch &old = *outstanding_.back()->batch, &now = *launch.batch;
  const auto begins_with = [](const auto& whole, const auto& part) {
    return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin());
  };
  if (!begins_with(now.rows, old.rows) || !begins_with(now.input_ids, old.input_ids) ||
      !begins_with(now.prompt_targets, old.prompt_targets) ||
      !begins_with(now.page_writes, old.page_writes) || !begins_with(now.slot_inits, old.slot_inits)) {
    error("batch {} was recalled, {} is something else", old.id, now.id);
  }
}

size_t FakeWorker::outstanding() const {
  return size_t(
      std::ranges::count_if(outstanding_, [](const auto& l) { return !l->collected && !l->recalled(); }));
}

bool FakeWorker::can_run() const {
  return !launched_.empty() && (!launched_.front()->waits || launched_.front()->recalled());
}

std::shared_ptr<FakeWorker::Launch> FakeWorker::take_launch() {
  std::lock_guard lock(mutex_);
  while (can_run()) {
    std::shared_ptr<Launch> launch = std::move(launched_.front());
    launched_.pop_front();
    if (launch->try_take()) return launch;
  }
  return nullptr;
}

bool FakeWorker::run_one() {
  const std::shared_ptr<Launch> launch = take_launch();
  if (launch) run(*launch);
  return launch != nullptr;
}

void FakeWorker::serve(const std::function<void()>& before_each) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      launched_or_stopped_.wait(lock, [&] { return stopped_ || can_run(); });
      if (!can_run()) return;
    }
    before_each();
    run_one();
  }
}

void FakeWorker::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  launched_or_stopped_.notify_one();
}

void FakeWorker::fail_next(Status status) {
  std::lock_guard lock(mutex_);
  fail_.push_back(std::move(status));
}

bool FakeWorker::take_failure(Status& status) {
  std::lock_guard lock(mutex_);
  if (fail_.empty()) return false;
  status = std::move(fail_.front());
  fail_.pop_front();
  return true;
}

void FakeWorker::report(std::string error) {
  std::lock_guard lock(mutex_);
  errors_.push_back(std::move(error));
}

void FakeWorker::run(Launch& launch) {
  const ModelWorkerBatch& batch = *launch.batch;
  if (to_bytes(batch) != launch.bytes) error("batch {} has changed since its launch", batch.id);
  Step& step =
      steps_.emplace_back(Step{.batch_id = batch.id, .mode = batch.mode, .rows = int32_t(batch.rows.size())});
  n_steps_++;
  launch.result.batch_id = batch.id;
  if (Status failure; take_failure(failure)) {
    step.failed = true;
    step.status.assign(batch.rows.size(), RowStatus::kFailed);
    // Who was to be admitted is not known to the device: rows of theirs that are launched already fail there.
    for (const SlotInit& init : batch.slot_inits) slots_.at(init.slot) = {};
    launch.copy_done.set(std::move(failure));
    return;
  }
  apply(batch);
  count(batch, step);
  std::vector<RowResult>& results = launch.result.rows;
  for (const BatchRow& row : batch.rows) {
    int32_t first_id = batch.input_ids.at(row.input_begin);
    results.emplace_back().status = take_row(row, first_id);
    if (results.back().status != RowStatus::kOk) continue;
    check_row(batch, row);
    write_row(batch, row, first_id);
  }
  for (size_t i = 0, masked = 0; i < results.size(); i++) {
    const BatchRow& row = batch.rows[i];
    std::span<const uint32_t> allowed;
    if (row.masked) allowed = mask_of(launch, masked++, results[i].status);
    if (results[i].status == RowStatus::kOk) results[i] = read_row(batch, row, allowed);
    step.dropped_rows += results[i].status == RowStatus::kDropped;
    step.failed_rows += results[i].status == RowStatus::kFailed;
    step.status.push_back(results[i].status);
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

// No token is computed beyond a request's length, nor twice.
void FakeWorker::check_row(const ModelWorkerBatch& batch, const BatchRow& row) {
  const Slot& slot = slots_[row.slot];
  const int32_t outputs = int32_t(slot.known.size()) - slot.prompt_len;
  if (row.emits && row.output_index >= slot.params.max_tokens)
    error("batch {}: slot {} is to emit token {} of {}", batch.id, row.slot, row.output_index,
          slot.params.max_tokens);
  if (row.output_index != outputs && row.emits)
    error("batch {}: slot {} emits token {}, has {}", batch.id, row.slot, row.output_index, outputs);
  const auto same = [&](const BatchRow& other) { return other.slot == row.slot; };
  if (std::ranges::count_if(batch.rows, same) != 1) error("batch {}: slot {} twice", batch.id, row.slot);
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

// What the masked row of that number may emit; or the status of a row that emits nothing.
std::span<const uint32_t> FakeWorker::mask_of(const Launch& launch, size_t masked, RowStatus& status) const {
  const RowMask mask = launch.info.rows.at(masked);
  if (status == RowStatus::kOk && mask != RowMask::kAllowed)
    status = mask == RowMask::kEnded ? RowStatus::kDropped : RowStatus::kFailed;
  const size_t words = mask_words(config_.vocab_size);
  return std::span(launch.info.allowed).subspan(masked * words, words);
}

RowResult FakeWorker::read_row(const ModelWorkerBatch& batch, const BatchRow& row,
                               std::span<const uint32_t> allowed) {
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
  result.token = next_token(context, outputs, slot.params, config_.eos_ids, config_.vocab_size, allowed);
  result.logprob = logprob_of(context, result.token);
  if (slot.params.top_logprobs > 0) result.top = {{result.token, result.logprob}};
  slot.known.push_back(result.token);
  slot.emitted++;
  return result;
}

void FakeWorker::poison(int32_t page) {
  std::ranges::fill(pages_.at(page), Cell{});
}

const FakeWorker::Step& FakeWorker::step_of(uint64_t batch_id) const {
  const auto it = std::ranges::lower_bound(steps_, batch_id, {}, &Step::batch_id);
  CHECK(it != steps_.end() && it->batch_id == batch_id, "batch {} was not computed", batch_id);
  return *it;
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
