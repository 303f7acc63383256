#include "sampling/sampling_params.h"

#include <algorithm>

namespace gapless {

TokenEnd ends_by_token(const SamplingParams& params, std::span<const int32_t> eos_ids, int32_t output_index,
                       int32_t token) {
  if (output_index >= params.min_tokens) {
    if (!params.ignore_eos && std::binary_search(eos_ids.begin(), eos_ids.end(), token))
      return TokenEnd::kEos;
    if (std::find(params.stop_token_ids.begin(), params.stop_token_ids.end(), token) !=
        params.stop_token_ids.end())
      return TokenEnd::kStopToken;
  }
  return output_index + 1 >= params.max_tokens ? TokenEnd::kLength : TokenEnd::kNo;
}

}  // namespace gapless
