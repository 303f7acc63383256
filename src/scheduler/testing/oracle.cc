#include "scheduler/testing/oracle.h"

#include <algorithm>

#include "base/check.h"
#include "sampling/sampling_info.h"
#include "scheduler/testing/fake_model.h"

namespace gapless::testing {

namespace {
// The stop string that is completed first in the text; the one that begins first when several are.
bool find_stop(const std::string& text, const std::vector<std::string>& stops, size_t& begin,
               std::string& which) {
  size_t best_end = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (best_end == std::string::npos || end < best_end || (end == best_end && at < begin)) {
      best_end = end;
      begin = at;
      which = stop;
    }
  }
  return best_end != std::string::npos;
}
}  // namespace

Answer oracle(const SchedulerConfig& config, const TokenBytes& tokens, const Request& request,
              int32_t choice) {
  Answer a;
  SamplingParams params = request.params;
  params.choice = choice;
  std::vector<int32_t> all = request.prompt_ids;
  if (request.prompt_logprob_begin >= 0) {
    for (size_t p = size_t(request.prompt_logprob_begin); p + 1 < all.size(); p++) {
      a.prompt_logprobs.push_back(logprob_of(std::span(all).first(p + 1), all[p + 1]));
    }
  }
  a.finish.reason = FinishReason::kLength;
  const auto grammar = request.grammar ? request.grammar->new_matcher() : nullptr;
  while (int32_t(a.ids.size()) < params.max_tokens) {
    std::vector<uint32_t> allowed(grammar ? mask_words(config.vocab_size) : 0);
    if (grammar) CHECK(grammar->fill_mask(allowed).is_ok());
    const int32_t token = next_token(all, a.ids, params, config.eos_ids, config.vocab_size, allowed);
    a.logprobs.push_back(logprob_of(all, token));
    const bool may_end = int32_t(a.ids.size()) >= params.min_tokens;
    a.ids.push_back(token);
    all.push_back(token);
    const bool eos = !params.ignore_eos && std::ranges::count(config.eos_ids, token) > 0;
    if (may_end && (eos || std::ranges::count(params.stop_token_ids, token) > 0)) {
      a.finish = {FinishReason::kStop, token, {}};
      break;
    }
    if (!request.skip_special_tokens || !tokens.control[token]) a.visible += tokens.of(token);
    size_t begin = 0;
    std::string which;
    if (find_stop(a.visible, request.stop, begin, which)) {
      a.visible.resize(begin);
      a.finish = {FinishReason::kStop, which, {}};
      break;
    }
    if (!grammar) continue;
    CHECK(grammar->accept(token).is_ok());
    if (!grammar->is_complete()) continue;
    a.finish = {FinishReason::kStop, {}, {}};
    break;
  }
  return a;
}

}  // namespace gapless::testing
