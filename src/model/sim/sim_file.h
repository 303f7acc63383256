// The simulated model as a file, so that nothing that loads a model needs to know of it.
#pragma once

#include <cstddef>
#include <vector>

#include "device/sim/sim_profile.h"

namespace gapless {

// Token ids of every simulated vocabulary; all others are printable text.
inline constexpr int32_t kSimUnknown = 0, kSimTurnBegin = 1, kSimTurnEnd = 2, kSimEndOfText = 3;

inline constexpr char kSimArchitecture[] = "sim";

// A GGUF file of this architecture: the profile's name, its vocabulary (characters, then words with a space
// before them, each one token) and a ChatML template. kSimTurnEnd and kSimEndOfText end an answer.
std::vector<std::byte> sim_model_file(const SimProfile& profile);

}  // namespace gapless
