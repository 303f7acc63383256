// What a test does to a simulated device: delays at the places where a real one may be late, and steps that
// fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "base/status.h"

namespace gapless {

// Where the stream is with a step.
enum class SimPoint {
  kStart,   // before the step begins
  kTake,    // before its first op
  kCopies,  // after its last op, before results reach host memory
  kEvent,   // after that, before its event is set
};

// Called on the stream's thread, or in advance(). Steps are numbered from 0 in the order of submission.
class SimFaults {
 public:
  virtual ~SimFaults() = default;
  // May take any time.
  virtual void at(SimPoint, uint64_t /*step*/) {}
  // Not ok: the step fails with this after its first op. Not asked for a step that was recalled.
  virtual Status failure(uint64_t /*step*/) { return {}; }
};

// At each point, a delay of up to max_delay with the given probability; a step fails with fail_probability.
class RandomSimFaults : public SimFaults {
 public:
  struct Options {
    uint64_t seed = 0;
    double delay_probability = 0.2;
    std::chrono::microseconds max_delay{200};
    double fail_probability = 0;
  };
  explicit RandomSimFaults(Options options) : options_(options), random_(options.seed) {}

  void at(SimPoint, uint64_t) override {
    if (!chance(options_.delay_probability)) return;
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_() % uint64_t(options_.max_delay.count() + 1)));
  }
  Status failure(uint64_t step) override {
    if (!chance(options_.fail_probability)) return {};
    return Status::internal("step {} failed by plan", step);
  }

 private:
  bool chance(double probability) { return double(random_() >> 11) * 0x1p-53 < probability; }

  const Options options_;
  std::mt19937_64 random_;  // of one stream's thread
};

}  // namespace gapless
