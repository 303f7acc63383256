// The whole seam between Gapless and a device: Device, Stream, Event, Buffer. cpu/ implements it; a simulated
// accelerator and CUDA fit behind the same four interfaces. Everything above this layer is the same for every
// device.
//
// A step is an OpList: a list of operations handed to a stream at once. Ops run in order; what one op wrote,
// the next one sees. An op is cut into chunks that the device may run in any order and on any of its workers,
// so a body must not depend on how many workers there are: every chunk writes its own outputs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace gapless {

// What a piece of work costs at least: memory traffic and arithmetic, a product and its addition being two
// operations.
struct OpWork {
  double bytes = 0;
  double flops = 0;
  double int8_ops = 0;  // of int8 products, which CPUs do faster
  OpWork& operator+=(const OpWork& o) {
    bytes += o.bytes;
    flops += o.flops;
    int8_ops += o.int8_ops;
    return *this;
  }
};

// When a step was handed over, began and ended on its device: seconds on the steady clock. A simulated device
// gives the times of the machine it stands for.
struct StepTimes {
  double submitted = 0, started = 0, ended = 0;
  double stood_still = 0;  // seconds between started and ended in which the stream had nothing to run
};

// What the body of an op may use besides its parameters.
struct OpContext {
  int worker = 0;  // 0 .. Stream::workers() - 1; at most one chunk runs per worker at a time
  // The worker runs chunks begin .. end - 1 in a row and then probably goes on at `next` (or there is none:
  // not below the number of chunks). A hint what to prefetch: results must not depend on it.
  int32_t begin = 0, end = 0, next = 0;
  int32_t after(int32_t chunk) const { return chunk + 1 < end ? chunk + 1 : next; }
  std::span<std::byte>
      scratch;  // this worker's own memory, kOpScratchBytes, 64-byte aligned, contents undefined at entry
  void (*fail_fn)(OpContext&, Status) = nullptr;  // set by the device; bodies call fail()
  // A device error: the step's event completes with this status (the first one wins); later ops of the step
  // are skipped, the other chunks of this op may still run, and later steps run normally.
  void fail(Status status) { fail_fn(*this, std::move(status)); }
  void (*end_step_fn)(OpContext&) = nullptr;  // set by the device; bodies call end_step()
  // Later ops of the step are skipped and its event completes without an error: a step that was recalled, or
  // whose every row was dropped. From an op of one chunk.
  void end_step() { end_step_fn(*this); }
};

inline constexpr size_t kOpScratchBytes = 1 << 20;

inline constexpr int32_t kMaxOpChunks = 1 << 23;
inline constexpr int32_t kMaxStepOps = 65'000;

class OpProfile;

// One operation. `params` points into the OpList's own memory. Both functions are called from device threads
// and must not throw, block or allocate (an exception that escapes one all the same fails the step). `chunks`
// is evaluated when all earlier ops of the stream are complete, so it may read what they wrote (for example
// the number of rows that `take` kept); it is pure, and gives 0 .. kMaxOpChunks. So is `work`, which says
// what the op costs, for devices that simulate another's clock and for profiles; null: nothing worth
// counting.
struct Op {
  const char* name;   // of the function: "matmul"
  const char* label;  // of this use of it, for profiles: "attn_q 576x576 Q4_1"; outlives every profile
  const void* params;
  int32_t (*chunks)(const void* params);
  void (*run)(const void* params, int32_t chunk, OpContext& context);
  OpWork (*work)(const void* params);
};

// What whoever submits a step says of it, for profiles.
struct StepTag {
  int32_t kind = 0;
  int64_t rows = 0;
};

// A step's list of ops together with the parameters they point to. Built on one thread, then moved to
// Stream::submit. Reusable: clear() keeps the memory, so that a steady decode loop allocates nothing.
class OpList {
 public:
  OpList() = default;
  OpList(OpList&&) = default;
  OpList& operator=(OpList&&) = default;

  // Chunks: int32_t(const P&); Run: void(const P&, int32_t chunk, OpContext&); Work: OpWork(const P&) or
  // nullptr. P is copied and must be trivially copyable. label: null for the name.
  template <auto Chunks, auto Run, auto Work = nullptr, class P>
  void push(const char* name, const P& params, const char* label = nullptr) {
    static_assert(std::is_trivially_copyable_v<P> && std::is_trivially_destructible_v<P>);
    const P* copy = new (allocate(sizeof(P), alignof(P))) P(params);
    OpWork (*work)(const void*) = nullptr;
    if constexpr (!std::is_null_pointer_v<decltype(Work)>)
      work = [](const void* p) -> OpWork { return Work(*static_cast<const P*>(p)); };
    ops_.push_back(
        {name, label ? label : name, copy,
         [](const void* p) -> int32_t { return Chunks(*static_cast<const P*>(p)); },
         [](const void* p, int32_t chunk, OpContext& c) { Run(*static_cast<const P*>(p), chunk, c); }, work});
  }
  std::span<const Op> ops() const { return ops_; }
  void clear();
  StepTag tag;  // clear() resets it

 private:
  void* allocate(size_t bytes, size_t align);

  static constexpr size_t kBlockBytes = 64 << 10;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  size_t block_ = 0, used_ = 0;
  std::vector<Op> ops_;
};

// Completion of something on a stream. Any thread may ask and wait; the events of a stream become ready in
// order.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool ready() const = 0;
  // Blocks until complete. Not ok: the step failed and none of its results may be read.
  virtual Status wait() = 0;
  // Calls `callback` with the status once the event is ready: on the thread that sets it, or at once if it is
  // ready already. It is over when wait() returns, so what it uses may go then. It wakes a thread that waits
  // for several things: it must be short, must not wait for the device or for this event, and must not throw.
  // At most one per event.
  using Callback = std::function<void(const Status&)>;
  virtual void on_set(Callback callback) = 0;
  // Of the step, once ready.
  virtual StepTimes times() const = 0;
};

// An Event that host code sets, once; also what the CPU device uses throughout.
class HostEvent : public Event {
 public:
  bool ready() const override { return ready_.load(std::memory_order_acquire); }
  Status wait() override;
  void on_set(Callback callback) override;
  StepTimes times() const override { return times_; }
  void set(Status status = {}, StepTimes times = {});

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ready_{false};
  Status status_;
  StepTimes times_;  // not changed once ready_
  Callback callback_;
};

// Memory that a device can read and write. Move-only; returned to its device on destruction.
class Buffer {
 public:
  using Free = void (*)(void* data, size_t bytes);
  Buffer() = default;
  Buffer(void* data, size_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~Buffer() {
    if (data_) free_(data_, bytes_);
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_ = nullptr;
};

// An in-order queue of steps. submit() may be called by one thread at a time; it never waits for the device.
// Destruction first completes what is queued.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues the step: at most kMaxStepOps ops. The event completes when its last op has; the list is by then
  // back in the pool of new_ops(), and no device thread reads the step's parameters any more.
  virtual std::shared_ptr<Event> submit(std::unique_ptr<OpList> ops) = 0;
  // An OpList to fill: one that came back from a completed step, cleared, or a new one. Any thread.
  virtual std::unique_ptr<OpList> new_ops() = 0;
  // Blocks until everything submitted so far is complete. Not from on_set.
  virtual void synchronize() = 0;
  virtual int workers() const = 0;
  // Steps that begin from now on are measured op by op, if they come to their end; null: no more. The profile
  // must live until another is set and synchronize() has returned. False: this device does not measure ops.
  virtual bool set_profile(OpProfile*) { return false; }
};

enum class MemoryKind {
  kDevice,  // lives with the device; zeroed; committed only when touched (a KV pool larger than RAM in use is
            // fine)
  kWeights,     // like kDevice, but will be touched whole (repacked weights): the device may use large pages
  kHostResult,  // host memory that the device writes results to
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;
  // bytes > 0; 64-byte aligned or better. An error names the size asked for.
  virtual Result<Buffer> allocate(size_t bytes, MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> create_stream() = 0;
  // Appends a copy from device to host memory (kHostResult) or the other way to a step.
  virtual void push_copy(OpList& ops, void* to, const void* from, size_t bytes) = 0;
  // For finding bugs: whether the device spoils memory that nobody may read any more, see poison().
  virtual bool poisons() const { return false; }
  // Host threads: what is there is no longer anybody's. A device that poisons() fills it with nonsense.
  virtual void poison(void*, size_t) {}
};

}  // namespace gapless
