// The simulated accelerator, --device sim[:profile]: real results in host memory at the time at which the
// machine of a profile would have them. It spoils memory that nobody may read: KV pages that the host gave
// back, and result buffers from submit until the step's event.
//
// Not simulated: the time of copies to the host, and anything but the sums of bytes, FLOPs and latencies.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "device/cpu/cpu_device.h"
#include "device/sim/sim_profile.h"
#include "device/sim/sim_stream.h"

namespace gapless {

// Times say nothing when more than this share of the steps took the host longer to compute than the device
// would have.
inline constexpr double kMaxSimOverrun = 0.001;

struct SimDeviceOptions {
  SimProfile profile;
  bool stepped = false;                         // no threads: a test calls advance()
  std::shared_ptr<SimFaults> faults = nullptr;  // of all streams
};

// As CpuDevice: any thread may allocate and create streams; streams and buffers may outlive it.
class SimDevice : public Device {
 public:
  explicit SimDevice(SimDeviceOptions options);
  const std::string& name() const override { return name_; }  // "sim:zero"
  Result<Buffer> allocate(size_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> create_stream() override;
  void push_copy(OpList& ops, void* to, const void* from, size_t bytes) override;
  bool poisons() const override { return true; }
  void poison(void* data, size_t bytes) override;

  const SimProfile& profile() const { return profile_; }
  // Stepped only: the next part of the oldest step of the oldest stream that has one (SimStream::advance).
  // False: no stream has.
  bool advance();

  struct Stats {
    int64_t steps = 0;            // completed, those that were recalled not counted
    int64_t overruns = 0;         // steps whose own work outlasted their cost
    double own_work_seconds = 0;  // CPU time of all steps' ops
  };
  // Any thread.
  Stats stats() const;

 private:
  bool is_host_result(const void* data);

  const SimProfile profile_;
  const std::string name_;
  CpuDevice memory_{1};
  const std::shared_ptr<SimShared> shared_ = std::make_shared<SimShared>();
  std::mutex mutex_;
  // Begin and end of kHostResult buffers. Freed ones stay until their addresses are handed out again, which
  // is soon enough: only memory of this device is ever copied to.
  std::map<uintptr_t, uintptr_t> host_results_;
};

}  // namespace gapless
