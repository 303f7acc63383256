#include "sampling/sampling_ranges.h"

#include <limits>

#include "sampling/slot_init.h"

namespace gapless {
namespace {

constexpr double kMaxCount = std::numeric_limits<int32_t>::max();
constexpr float kMaxBias = 100;

struct Range {
  const char* field;
  double value, min, max;
  bool above_min = false;  // min itself is out of range

  // False for NaN.
  bool holds() const { return value >= min && value <= max && !(above_min && value == min); }
};

}  // namespace

Status check_ranges(const SamplingParams& p) {
  const Range ranges[] = {{"temperature", p.temperature, 0, 2},
                          {"top_k", double(p.top_k), 0, kMaxCount},
                          {"top_p", p.top_p, 0, 1, true},
                          {"min_p", p.min_p, 0, 1},
                          {"frequency_penalty", p.frequency_penalty, -2, 2},
                          {"presence_penalty", p.presence_penalty, -2, 2},
                          {"repetition_penalty", p.repetition_penalty, 0, 2, true},
                          {"top_logprobs", double(p.top_logprobs), -1, kMaxTopLogprobs}};
  for (const Range& r : ranges) {
    if (!r.holds())
      return Status::invalid("{} is {}, must be {}{} to {}", r.field, r.value, r.above_min ? "above " : "",
                             r.min, r.max)
          .with_param(r.field);
  }
  for (const auto& [id, bias] : p.logit_bias) {
    if (!(bias >= -kMaxBias && bias <= kMaxBias))
      return Status::invalid("logit_bias of token {} is {}, must be {} to {}", id, bias, -kMaxBias, kMaxBias)
          .with_param("logit_bias");
  }
  return {};
}

}  // namespace gapless
