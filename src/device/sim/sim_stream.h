// A stream of the simulated accelerator: one thread that runs a step's ops in order on real host memory, then
// waits until the simulated machine would be done.
//
// A step goes through three parts:
//   take     waits until the simulated start, runs the first op (a launch is taken no earlier than on the
//            machine)
//   compute  the other ops, whose work() adds up to the step's cost
//   finish   waits until the simulated end; copies to host memory and the event come only then
// On a stepped device there is no thread and no waiting: advance() does one part.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/thread.h"
#include "device/device.h"
#include "device/sim/sim_clock.h"
#include "device/sim/sim_faults.h"

namespace gapless {

class SimStream;

// A copy to host memory, as an op with this name (the pointer is compared): done when the step ends.
inline constexpr char kSimHostCopy[] = "copy_to_host";
struct SimCopy {
  char* to;
  const char* from;
  size_t bytes;
};

// What a device shares with its streams, which may outlive it.
struct SimShared {
  SimMachine machine;
  std::shared_ptr<SimFaults> faults;  // may be null
  bool stepped = false;
  std::atomic<int64_t> steps{0}, overruns{0}, own_work_ns{0};
  std::mutex mutex;
  std::vector<SimStream*> streams;  // that live, oldest first
};

class SimStream : public Stream {
 public:
  explicit SimStream(std::shared_ptr<SimShared> shared);
  ~SimStream() override;

  std::shared_ptr<Event> submit(std::unique_ptr<OpList> ops) override;
  std::unique_ptr<OpList> new_ops() override;
  // Stepped: advances until nothing is left.
  void synchronize() override;
  int workers() const override { return 1; }

  // Stepped only; one thread, which may be the one that submits. The next part of the oldest step. False:
  // there is none.
  bool advance();

 private:
  struct Step {
    std::unique_ptr<OpList> ops;
    std::shared_ptr<HostEvent> event;
    double submitted;
    uint64_t number;
  };
  enum class Part { kTake, kCompute, kFinish };
  struct Context : OpContext {
    SimStream* stream = nullptr;
  };

  void thread();
  bool next_step(bool wait);
  void next_part();
  void take();
  void compute();
  void finish();
  void complete();
  void run_ops(size_t begin, size_t end);
  void run_op(const Op& op);
  void copy_to_host();
  void fail(Status status);
  void wait_until(double time) const;
  void pause_at(SimPoint point) const;

  const std::shared_ptr<SimShared> shared_;

  // The stream's thread, or who advances.
  std::optional<Step> current_;
  Part part_ = Part::kTake;
  SimClock clock_;
  StepTimes times_;
  OpWork work_;
  double own_work_ = 0, own_work_done_ = 0;  // CPU seconds; seconds of the steady clock
  bool ended_ = false;                       // by an op
  std::optional<Status> error_;              // of the step
  std::unique_ptr<std::byte, void (*)(void*)> scratch_;
  Context context_;

  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::deque<Step> queue_;
  std::vector<std::unique_ptr<OpList>> free_lists_;
  uint64_t submitted_ = 0, completed_ = 0;
  bool stop_ = false;

  NamedThread thread_;  // last: it uses all of the above
};

}  // namespace gapless
