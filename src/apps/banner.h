// What `gapless serve` says when it starts, while it is busy and when it ends.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "apps/args.h"
#include "device/sim/sim_device.h"
#include "engine/engine.h"

namespace gapless {

// At most 15 lines, the last one a curl command to try.
std::vector<std::string> start_banner(const ServeArgs& args, const Engine& engine,
                                      const std::vector<std::string>& urls, bool has_key,
                                      double load_seconds);

// One line of figures for the time since the last call; empty when nothing happened.
class StatsLine {
 public:
  // sim: of the simulated device, if it is one.
  std::string next(const SchedulerStats& now, double seconds, const SimDevice::Stats& sim = {});

 private:
  SchedulerStats last_;
  SimDevice::Stats last_sim_;
};

std::string end_summary(const SchedulerStats& stats, int64_t requests);

// "98.4 MB"
std::string human_bytes(double bytes);
// "134.5 M"
std::string human_count(double n);

}  // namespace gapless
