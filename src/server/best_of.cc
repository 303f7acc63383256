#include "server/best_of.h"

#include <algorithm>
#include <limits>
#include <span>

namespace gapless {

namespace {

double mean_logprob(const Choice& choice) {
  if (choice.finish->reason == FinishReason::kError) return -std::numeric_limits<double>::infinity();
  return choice.n_tokens > 0 ? choice.logprob_sum / double(choice.n_tokens) : 0;
}

}  // namespace

std::vector<Choice> likeliest(std::vector<Choice> choices, int32_t generated, int32_t kept) {
  if (kept == generated) return choices;
  std::vector<Choice> out;
  for (size_t begin = 0; begin < choices.size(); begin += size_t(generated)) {
    const std::span<Choice> of_prompt = std::span(choices).subspan(begin, size_t(generated));
    std::ranges::stable_sort(of_prompt, std::greater(), mean_logprob);
    for (Choice& choice : of_prompt.first(size_t(kept))) {
      choice.index = int32_t(out.size());
      out.push_back(std::move(choice));
    }
  }
  return out;
}

}  // namespace gapless
