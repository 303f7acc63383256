// What an OpProfile says, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "device/op_profile.h"
#include "kernels/roof.h"

namespace gapless {

// The same in two forms.
struct ProfileReport {
  std::string text, json;
};

// How an op compares with the machine: the longest of what its bytes take at the roof's bandwidth and what
// its operations take at the roof's rate, over what it took. 0 for an op that counts no work. Ops whose data
// is in a cache may come out above 1.
struct RoofUse {
  double share = 0;
  const char* bound = "";  // "memory", "int8" or "float"
};
RoofUse roof_use(const OpTotals& op, const Roof& roof);

// A table per kind of step (ForwardMode): the ops with the most time first, at most `max_ops` and the rest in
// one line, and what lay between steps. Times are per step and per call.
std::string profile_text(const std::vector<StepTotals>& steps, const Roof& roof, size_t max_ops = 16);
// {"roof": {...}, "steps": [{"kind", "steps", "tokens", "seconds", "gap_seconds", "ops": [...]}]}
std::string profile_json(const std::vector<StepTotals>& steps, const Roof& roof);

}  // namespace gapless
