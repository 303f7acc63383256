// A forward side without a device, for tests of the scheduler: its "KV" of a position is the token id itself.
// Every answer is computed from what it reads back through the page table that the scheduler built, and
// everything a scheduler can get wrong is checked against the worker's own record of each slot: pages freed
// too early, written twice or never, stale slots, shifted rows, a batch that changes after its launch, a
// request that is scheduled beyond its length, a recalled batch that comes back as another.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "scheduler/scheduler_config.h"
#include "worker/model_worker.h"

namespace gapless::testing {

class FakeWorker : public ModelWorkerClient {
 public:
  explicit FakeWorker(const SchedulerConfig& config);
  ~FakeWorker() override;

  // Scheduler thread.
  PendingForward forward_batch_generation(Frozen<ModelWorkerBatch> batch) override;
  // The scheduler's on_page_freed: the page's content is gone. Takes no lock: a thread sanitizer sees a page
  // that is given back while a batch still reads it.
  void poison(int32_t page);

  // By default a launch computes at once, or when the masks of its rows have come. Held, it waits for
  // run_one(), or for serve() on another thread.
  void hold(bool held) { held_ = held; }
  bool run_one();  // false: nothing is launched. A recalled launch is passed over
  // Computes what is launched until stop(); `before_each` is called before a launch is taken.
  void serve(const std::function<void()>& before_each);
  void stop();

  // The next launches fail as a device would: nothing of them is computed. Any thread.
  void fail_next(Status status);

  // What went wrong, one line each. A healthy scheduler leaves it empty.
  const std::vector<std::string>& errors() const { return errors_; }

  struct Step {
    uint64_t batch_id;
    ForwardMode mode;
    int32_t prefill_tokens = 0, decode_rows = 0, rows = 0, dropped_rows = 0, failed_rows = 0;
    bool failed = false;
    std::vector<RowStatus> status{};  // of each row
  };
  // Computed steps, in order.
  const std::vector<Step>& steps() const { return steps_; }
  const Step& step_of(uint64_t batch_id) const;
  int64_t n_steps() const { return n_steps_; }  // any thread
  int64_t prefill_tokens() const;
  int32_t count_steps(ForwardMode mode) const;

  // Launches whose result is not taken, and the most there have been. Scheduler thread.
  size_t outstanding() const;
  size_t max_outstanding() const { return max_outstanding_; }
  // A launch that was recalled and whose replacement was recalled as well.
  int64_t recalled_again() const { return recalled_again_; }

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

  void set_sampling_info(Launch& launch, std::optional<SamplingInfo> info);
  bool can_run() const;  // under the mutex
  std::shared_ptr<Launch> take_launch();
  bool take_failure(Status& status);
  void check_relaunch(Launch& launch);
  void run(Launch& launch);
  void count(const ModelWorkerBatch& batch, Step& step) const;
  void apply(const ModelWorkerBatch& batch);
  void check_row(const ModelWorkerBatch& batch, const BatchRow& row);
  // The row's first id, or why the row does not run.
  RowStatus take_row(const BatchRow& row, int32_t& first_id) const;
  void write_row(const ModelWorkerBatch& batch, const BatchRow& row, int32_t first_id);
  std::span<const uint32_t> mask_of(const Launch& launch, size_t masked, RowStatus& status) const;
  RowResult read_row(const ModelWorkerBatch& batch, const BatchRow& row, std::span<const uint32_t> allowed);
  Cell* cell(const BatchRow& row, int32_t pos);
  void report(std::string error);
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    report(fmt::format(format, std::forward<Args>(args)...));
  }

  const SchedulerConfig config_;
  // Of the computing thread, but for what poison() writes.
  std::vector<std::vector<Cell>> pages_;
  std::vector<std::vector<int32_t>> page_table_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  std::atomic<int64_t> n_steps_{0};
  // Of the scheduler thread.
  std::vector<std::shared_ptr<Launch>> outstanding_;  // launched, result not taken
  size_t max_outstanding_ = 0;
  uint64_t last_id_ = 0;
  int64_t recalled_again_ = 0;
  bool held_ = false;

  mutable std::mutex mutex_;
  std::condition_variable launched_or_stopped_;
  std::deque<std::shared_ptr<Launch>> launched_;
  std::deque<Status> fail_;
  std::vector<std::string> errors_;
  bool stopped_ = false;
};

}  // namespace gapless::testing
