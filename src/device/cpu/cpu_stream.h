// A stream of the CPU device: an in-order queue of steps and a team of threads that works on one op at a
// time.
//
// All of the progress of a stream is one 64-bit word, `claim_` = [op | chunks | next chunk]. A worker claims
// some chunks in a row by adding their number to it; what the addition returns says which op and chunks it
// got, or that none were left. It takes a share of what is left, so the pieces get smaller towards the end: a
// claim costs 0.1 to 0.4 us when another core had the word last, and 36 chunks one by one doubled the time of
// a small matmul. Claimed chunks are reported to `done_`; whoever reports the last one leads on: it asks the
// next op for its number of chunks, and publishes it. So an op is complete when its chunks are, not when all
// threads have arrived: one that is descheduled between two chunks delays nobody, and one that comes late can
// only ever claim work that still exists. Nothing of a step is read without a claim on it, so its list goes
// back to the pool, and its event is set, at the moment its last chunk is done. The leader of a step is thus
// the thread that gets to it first; submit() wakes one sleeper, and the leader wakes as many more as the op
// at hand has chunks for.
//
// Measured on 2 cores of a virtual machine, steps of 300 ops (cpu_device_test, CpuStream.OverheadPerOp,
// prints it): 40-95 ns for an op without work; beyond 5 us of work in each of two threads 160 ns when the
// host gives both cores one cache, 500 ns when not.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/thread.h"
#include "device/cpu/parking.h"
#include "device/device.h"
#include "device/op_profile.h"

namespace gapless {

class CpuStream : public Stream {
 public:
  explicit CpuStream(int threads);
  ~CpuStream() override;

  std::shared_ptr<Event> submit(std::unique_ptr<OpList> ops) override;
  std::unique_ptr<OpList> new_ops() override;
  void synchronize() override;
  int workers() const override { return workers_; }
  bool set_profile(OpProfile* profile) override {
    profile_.store(profile);
    return true;
  }

 private:
  struct Step {
    std::unique_ptr<OpList> ops;
    std::shared_ptr<HostEvent> event;
    double submitted = 0;
    uint64_t number = 0;
    Step* next = nullptr;  // in the queue
  };
  struct Claim {
    int32_t op, chunks, begin, end;  // chunks begin .. end - 1 of `chunks`
  };
  struct Worker;

  void work(int index);
  bool wait_for_claim(Claim& claim);
  bool try_claim(Claim& claim);
  bool work_on(Claim& claim, Worker& worker);
  void run_chunks(const Claim& claim, Worker& worker);
  bool lead_on(int32_t op, Claim& claim);
  int32_t count_chunks(const Op& op);
  int32_t share_of(int32_t chunks, int32_t next) const;
  int32_t likely_next(const Claim& claim) const;
  void publish(int32_t op, int32_t chunks, int32_t next, int wake);
  void begin_step();
  void begin_sample(const Op& op);
  void end_sample(double now);
  void finish_step();
  bool claimable() const;
  void fail(Status status);
  void end_step() { skip_.store(true, std::memory_order_relaxed); }

  static constexpr size_t kCacheLine = 64;
  const int32_t workers_;
  alignas(kCacheLine) std::atomic<uint64_t> claim_{0};
  // On the line of claim_: who reports the last chunk writes both (10-15 % less per op than on a line of its
  // own, 2 threads).
  std::atomic<int32_t> done_{0};
  alignas(kCacheLine) Parking parking_;
  std::atomic<bool> stop_{false};

  // The step being worked on. Written by the thread that publishes it, before it publishes; read with a claim
  // on it.
  alignas(kCacheLine) Step* current_ = nullptr;
  std::span<const Op> ops_;
  double started_ = 0;
  std::atomic<bool> skip_{false};      // the rest of the step: it failed, or an op ended it
  OpProfile* step_profile_ = nullptr;  // of this step
  std::vector<OpSample> samples_;
  double op_began_ = 0;

  std::atomic<OpProfile*> profile_{nullptr};
  std::mutex mutex_;  // all below
  std::condition_variable step_done_;
  uint64_t submitted_ = 0;
  std::atomic<uint64_t> completed_{0};  // events that are set
  Step *queue_head_ = nullptr, *queue_tail_ = nullptr;
  bool running_ = false;                      // current_ is set
  std::optional<Status> error_;               // of the current step
  std::vector<std::unique_ptr<Step>> steps_;  // all there are
  std::vector<Step*> free_steps_;
  std::vector<std::unique_ptr<OpList>> free_lists_;

  std::vector<NamedThread> team_;  // last: the threads use all of the above
};

}  // namespace gapless
