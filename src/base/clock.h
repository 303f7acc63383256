// The one clock of traces, device times and durations.
#pragma once

#include <chrono>

namespace gapless {

// Seconds on the steady clock. About 25 ns.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gapless
