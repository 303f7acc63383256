#include "sampling/slot_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace gapless {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
// OpenAI: "values like -100 should result in a ban"; added to a logit it only makes the token unlikely.
constexpr float kBanBias = -100;

bool has_penalty(const SamplingParams& p) {
  return p.frequency_penalty != 0 || p.presence_penalty != 0 || p.repetition_penalty != 1;
}

}  // namespace

SlotState::SlotState(const SlotInit& init, int32_t vocab_size, std::span<const int32_t> eos_ids)
    : params_(init.params),
      output_index_(int32_t(init.output_ids.size())),
      penalised_(has_penalty(init.params)) {
  if (params_.min_tokens > output_index_) {
    ends_.assign(eos_ids.begin(), eos_ids.end());
    ends_.insert(ends_.end(), params_.stop_token_ids.begin(), params_.stop_token_ids.end());
    std::erase_if(ends_, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  }
  size_t capacity = 0;
  if (penalised_) {
    const int64_t tokens = int64_t(init.prompt_ids.size()) + std::max(params_.max_tokens, output_index_);
    capacity = size_t(std::min<int64_t>(tokens, vocab_size));
    counts_.reserve(capacity);
    size_t slots = 16;
    while (slots < 2 * capacity) slots *= 2;
    index_.assign(slots, 0);
    for (int32_t id : init.prompt_ids) count_of(id);
    for (int32_t id : init.output_ids) ++count_of(id).outputs;
  }
  if (wants_logprobs()) raw_.reserve(params_.logit_bias.size() + capacity + ends_.size());
}

// Found, or added with no outputs.
SlotState::Count& SlotState::count_of(int32_t token) {
  CHECK(token >= 0, "a placeholder ({}) is not a token to count", token);
  const size_t mask = index_.size() - 1;
  for (size_t at = (uint32_t(token) * 2654435769u >> 7) & mask;; at = (at + 1) & mask) {
    int32_t& entry = index_[at];
    if (entry == 0) {
      CHECK_LT(counts_.size(), counts_.capacity());
      counts_.push_back({token, 0});
      entry = int32_t(counts_.size());
    }
    Count& count = counts_[size_t(entry) - 1];
    if (count.token == token) return count;
  }
}

bool SlotState::changes_logits() const {
  return !params_.logit_bias.empty() || !counts_.empty() || (bans_ends() && !ends_.empty());
}

void SlotState::change_logits(float* logits) {
  if (wants_logprobs()) {
    raw_.clear();
    for (const auto& [token, bias] : params_.logit_bias) raw_.push_back({token, logits[token]});
    for (const Count& c : counts_) raw_.push_back({c.token, logits[c.token]});
    if (bans_ends())
      for (int32_t token : ends_) raw_.push_back({token, logits[token]});
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    if (bias <= kBanBias)
      logits[token] = kBanned;
    else
      logits[token] += bias;
  }
  const SamplingParams& p = params_;
  for (const Count& c : counts_) {
    float& l = logits[c.token];
    if (c.outputs > 0) {
      l -= p.frequency_penalty * float(c.outputs);
      l -= p.presence_penalty;
    }
    if (p.repetition_penalty != 1) l = l > 0 ? l / p.repetition_penalty : l * p.repetition_penalty;
  }
  if (bans_ends())
    for (int32_t token : ends_) logits[token] = kBanned;
}

float SlotState::raw_logit(const float* logits, int32_t token) const {
  // The first entry of a token: later ones are of the same row and equal.
  for (const Raw& raw : raw_)
    if (raw.token == token) return raw.logit;
  return logits[token];
}

void SlotState::advance(int32_t token) {
  ++output_index_;
  raw_.clear();  // of the row just sampled; the next one may change no logit at all
  if (penalised_) ++count_of(token).outputs;
}

}  // namespace gapless
