// A forward side without a device, for tests of the scheduler: its "KV" of a position is the token id itself.
// Every answer is computed from what it reads back through the page table that the scheduler built, and
// everything a scheduler can get wrong is checked against the worker's own record of each slot: pages freed
// too early, written twice or never, stale slots, shifted rows.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/scheduler_config.h"
#include "worker/model_worker.h"

namespace gapless::testing {

class FakeWorker : public ModelWorkerClient {
 public:
  explicit FakeWorker(const SchedulerConfig& config);
  ~FakeWorker() override;

  PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override;

  // By default a launch computes at once. Held, it waits for run_one().
  void hold(bool held) { held_ = held; }
  bool run_one();  // false: nothing is launched. A recalled launch is passed over

  // The scheduler's on_page_freed: the page's content is gone.
  void poison(int32_t page);
  // The next launches fail as a device would: nothing of them is computed.
  void fail_next(Status status) { fail_.push_back(std::move(status)); }

  // What went wrong, one line each. A healthy scheduler leaves it empty.
  const std::vector<std::string>& errors() const { return errors_; }

  struct Step {
    ForwardMode mode;
    int32_t prefill_tokens = 0, decode_rows = 0, rows = 0, dropped_rows = 0, failed_rows = 0;
    bool failed = false;
  };
  const std::vector<Step>& steps() const { return steps_; }
  int64_t prefill_tokens() const;
  int32_t count_steps(ForwardMode mode) const;

 private:
  struct Launch;
  struct Slot {
    uint32_t epoch = 0;  // 0: never used
    int32_t kv_end = 0;
    SamplingParams params;
    std::vector<int32_t> known;  // prompt and outputs
    int32_t prompt_len = 0;
    int32_t emitted = 0;  // since it was admitted
  };
  struct Cell {
    int32_t id = -1;  // -1: poison
    uint64_t batch = 0;
  };

  void run(Launch& launch);
  void count(const ModelWorkerBatch& batch, Step& step) const;
  void apply(const ModelWorkerBatch& batch);
  // The row's first id, or why the row does not run.
  RowStatus take_row(const BatchRow& row, int32_t& first_id) const;
  void write_row(const ModelWorkerBatch& batch, const BatchRow& row, int32_t first_id);
  RowResult read_row(const ModelWorkerBatch& batch, const BatchRow& row);
  Cell* cell(const BatchRow& row, int32_t pos);
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    errors_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const SchedulerConfig config_;
  std::vector<std::vector<Cell>> pages_;
  std::vector<std::vector<int32_t>> page_table_;
  std::vector<Slot> slots_;
  std::deque<std::shared_ptr<Launch>> launched_;
  std::vector<std::shared_ptr<Launch>> outstanding_;  // launched, result not taken
  std::deque<Status> fail_;
  bool held_ = false;
  uint64_t last_id_ = 0;
  std::vector<std::string> errors_;
  std::vector<Step> steps_;
};

}  // namespace gapless::testing
