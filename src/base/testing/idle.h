// For the tests that say of a thread that it sleeps when it has nothing to do.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/thread_cpu.h"

namespace gapless::testing {

// The share of a core that the threads called `name` use at rest, from 20 ms after `work` on: the least of up
// to ten windows, ended by the first below `enough`. A thread that polls or spins uses as much in all of
// them; on a busy machine a single one may be billed for what is not the thread's (interrupts, sanitizers).
inline double cpu_share_at_rest(const std::string& name, double enough, const std::function<void()>& work) {
  double least = 1e9;
  for (int window = 0; window < 10 && least >= enough; ++window) {
    work();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double used = thread_cpu_seconds()[name], since = steady_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    least = std::min(least, (thread_cpu_seconds()[name] - used) / (steady_seconds() - since));
  }
  return least;
}

}  // namespace gapless::testing
