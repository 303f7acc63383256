// Tells a server that works slowly from one that is stuck. Any thread; driven by whoever asks for readiness.
#pragma once

#include <chrono>
#include <mutex>

#include "base/status.h"
#include "scheduler/scheduler_metrics.h"

namespace gapless {

class Watchdog {
 public:
  // Not ready when there has been work for this long without any step finishing.
  static constexpr std::chrono::seconds kPatience{60};

  Status check(const SchedulerStats& stats, Clock::time_point now = Clock::now()) {
    std::lock_guard lock(mutex_);
    const bool work = stats.running + stats.queued > 0;
    if (!work || stats.steps != last_steps_) {
      last_steps_ = stats.steps;
      since_ = now;
    }
    if (now - since_ < kPatience) return {};
    return Status(
        StatusCode::kUnavailable,
        fmt::format("{} requests are running and no step has finished for {} seconds", stats.running,
                    std::chrono::duration_cast<std::chrono::seconds>(now - since_).count()));
  }

 private:
  std::mutex mutex_;
  int64_t last_steps_ = -1;
  Clock::time_point since_{};
};

}  // namespace gapless
