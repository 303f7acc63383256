// The whole of the forward side as it is in a server, below a real scheduler: both workers over one runner,
// the real sampler, the simulated model on the simulated accelerator, which poisons every page that the
// scheduler gives back. Runs a workload and says what is wrong with it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/sim/sim_device.h"
#include "scheduler/scheduler.h"
#include "scheduler/sim_testing/fault.h"
#include "scheduler/sim_testing/workload.h"
#include "worker/overlap_worker.h"

namespace gapless::sim_testing {

// What a run met, to know that workloads are worth something.
struct Coverage {
  int64_t steps = 0, recalls = 0, retractions = 0, memory_stalls = 0, cached_tokens = 0, dropped_rows = 0,
          wasted_rows = 0, failed_steps = 0, switches = 0, flushes = 0, aborted = 0;
  Coverage& operator+=(const Coverage& other);
  std::string text() const;
};

// Everything one choice was sent.
struct Received {
  std::vector<ExpectedToken> tokens;
  std::vector<OutputToken> prompt_logprobs;
  int64_t visible_bytes = 0;
  int32_t prompt_tokens = -1, cached_tokens = -1;
  std::optional<Finish> finish;
};

class Rig : private TokenSink {
 public:
  enum class Drive : uint8_t { kStepped, kThreaded };
  // `fault` only where the drive is stepped; it outlives the rig.
  Rig(const Workload& workload, Drive drive, Fault* fault = nullptr);
  ~Rig() override;

  // Scheduler, forward worker and device from the calling thread, in an order drawn from the seed. Empty: all
  // answers were right and all laws held; else the first thing that was wrong.
  std::string run_stepped();
  // The same with a thread for each of the three, and a device that is late at random.
  std::string run_threaded();

  Coverage coverage() const;

 private:
  class Worker;
  struct Failing;

  void on_tokens(std::vector<TokenDelta> deltas) override;
  void receive(TokenDelta& delta);
  void at_launch();
  void send(const Happening& happening);
  void push(SchedulerMessage message);
  bool advance(Random& random, const std::vector<int32_t>& weights);
  bool scheduler_can_step() const;
  void step_scheduler();
  std::vector<std::pair<RequestId, int32_t>> failing_choices(const InFlight& launched) const;
  void check_memory();
  void check_end();
  void check_answer(size_t request, int32_t choice);
  void check_tokens(const std::string& who, const Received& got, const Answer& want, const Request& request);
  template <class... Args>
  void expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
    if (!ok && error_.empty()) error_ = fmt::format(format, std::forward<Args>(args)...);
  }

  const Workload& w_;
  Fault* const fault_;
  const bool threaded_;
  std::string error_;  // the first one
  Random random_;      // of the scheduler's side
  std::shared_ptr<Failing> failing_;
  SimDevice device_;
  std::unique_ptr<Device> tap_;
  std::unique_ptr<Model> model_;
  const OpTable table_{};
  Tracer tracer_{64};
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<ModelWorker> model_worker_;
  std::unique_ptr<OverlapWorker> overlap_worker_;
  std::unique_ptr<Worker> normal_client_, overlap_client_;
  Queue<SchedulerMessage> inbox_;
  MetricsRegistry metrics_;
  std::unique_ptr<Scheduler> scheduler_;
  LoopWait last_wait_ = LoopWait::kNothing;
  int64_t scheduler_steps_ = 0;

  std::map<std::pair<RequestId, int32_t>, Received> received_;
  std::set<RequestId> aborted_;
  std::vector<RequestId> new_aborts_;
  std::set<std::pair<RequestId, int32_t>> failed_;  // choices that a failed step must have ended
  int64_t flushes_sent_ = 0, flushes_done_ = 0, switches_sent_ = 0, switches_done_ = 0;
};

}  // namespace gapless::sim_testing
