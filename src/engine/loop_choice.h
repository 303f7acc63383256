// Which of the two loops a server starts with, and why.
#pragma once

#include <array>
#include <string>

#include "engine/engine_options.h"

namespace gapless {

// A condition under which overlap is off although nobody asked for it. The table is what docs/overlap.md
// shows, and the banner gives the reason. It should be empty: overlap has to hold for every feature.
struct OverlapOff {
  bool (*applies)(const EngineOptions& options);
  const char* reason;
};
inline constexpr std::array<OverlapOff, 0> kOverlapOff{};

struct LoopChoice {
  EventLoop loop = EventLoop::kOverlap;
  std::string reason;  // why not overlap
};

inline LoopChoice choose_loop(const EngineOptions& options) {
  if (options.disable_overlap_schedule) return {EventLoop::kNormal, "--disable-overlap-schedule"};
  for (const OverlapOff& row : kOverlapOff) {
    if (row.applies(options)) return {EventLoop::kNormal, row.reason};
  }
  return {};
}

}  // namespace gapless
