// Where the time of steps goes: what each op took on the device, beside what it would cost at least.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/device.h"

namespace gapless {

// One op of a step, as a stream measured it: from the moment it was handed out until the next one was.
struct OpSample {
  const char* label;
  double seconds;
  OpWork work;
};

struct OpTotals {
  std::string label;
  int64_t calls = 0;
  double seconds = 0;
  OpWork work;
};

// All steps of one kind.
struct StepTotals {
  int32_t kind = 0;  // StepTag::kind
  int64_t steps = 0, rows = 0;
  double seconds = 0;         // on the device: the sum of the ops
  double gaps = 0;            // between a step that was already submitted and the one before it
  std::vector<OpTotals> ops;  // in the order of their first appearance
};

// Filled by streams (Stream::set_profile), read by anybody: any thread may call anything.
class OpProfile {
 public:
  // The ops of a step, in order. Labels are compared by address first, so a label's text must not change as
  // long as the profile lives; it is copied when it is seen for the first time.
  void add(const StepTag& tag, std::span<const OpSample> ops, const StepTimes& times);
  // Since the beginning or the last reset, by kind ascending.
  std::vector<StepTotals> totals() const;
  void reset();

 private:
  struct Kind {
    StepTotals totals;
    std::unordered_map<const char*, size_t> by_address;  // -> totals.ops
  };
  static size_t place_of(Kind& kind, const char* label);

  mutable std::mutex mutex_;  // all below
  std::map<int32_t, Kind> kinds_;
  double last_end_ = 0;
};

}  // namespace gapless
