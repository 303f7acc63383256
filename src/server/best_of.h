// best_of: more answers are generated than returned.
#pragma once

#include <vector>

#include "server/answer.h"

namespace gapless {

// Of each prompt's `generated` choices, all of them finished, the `kept` ones whose tokens have the highest
// mean logprob, that one first; equal ones in the order of their seeds, failed ones last. Their indices are
// those that the client sees.
std::vector<Choice> likeliest(std::vector<Choice> choices, int32_t generated, int32_t kept);

}  // namespace gapless
