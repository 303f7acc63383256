// The semantics of sampling written as plainly as possible, in double precision. For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "sampling/slot_init.h"

namespace gapless::testing {

inline double log_sum_exp(const std::vector<double>& logits) {
  const double m = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double l : logits) sum += std::exp(l - m);
  return m + std::log(sum);
}

// bias, then frequency and presence, then repetition, then the ban of end tokens. `outputs`: all tokens
// emitted so far.
inline std::vector<double> changed_logits(const std::vector<float>& raw, const SamplingParams& p,
                                          const std::vector<int32_t>& prompt,
                                          const std::vector<int32_t>& outputs,
                                          const std::vector<int32_t>& eos_ids) {
  std::vector<double> l(raw.begin(), raw.end());
  for (const auto& [id, bias] : p.logit_bias)
    l[size_t(id)] = bias <= -100 ? -INFINITY : l[size_t(id)] + double(bias);
  std::map<int32_t, int> counts;
  for (int32_t id : outputs) ++counts[id];
  for (const auto& [id, n] : counts)
    l[size_t(id)] -= double(p.frequency_penalty) * n + double(p.presence_penalty);
  std::set<int32_t> seen(prompt.begin(), prompt.end());
  seen.insert(outputs.begin(), outputs.end());
  for (int32_t id : seen) {
    double& x = l[size_t(id)];
    x = x > 0 ? x / double(p.repetition_penalty) : x * double(p.repetition_penalty);
  }
  if (int32_t(outputs.size()) < p.min_tokens) {
    for (int32_t id : eos_ids) l[size_t(id)] = -INFINITY;
    for (int32_t id : p.stop_token_ids) l[size_t(id)] = -INFINITY;
  }
  return l;
}

// The probability of every token in the draw.
inline std::vector<double> distribution(const std::vector<double>& logits, const SamplingParams& p) {
  const size_t n = logits.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double m = logits[order[0]];
  std::vector<double> w(n);
  for (size_t i = 0; i < n; ++i) w[i] = std::exp((logits[i] - m) / double(p.temperature));
  size_t kept = p.top_k > 0 ? std::min(n, size_t(p.top_k)) : n;
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += w[order[i]];
  double sum = 0;
  size_t nucleus = 0;
  while (nucleus < kept && (nucleus == 0 || p.top_p >= 1 || sum < double(p.top_p) * total))
    sum += w[order[nucleus++]];
  kept = nucleus;
  while (kept > 1 && w[order[kept - 1]] < double(p.min_p)) --kept;
  std::vector<double> probability(n, 0);
  sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += w[order[i]];
  for (size_t i = 0; i < kept; ++i) probability[order[i]] = w[order[i]] / sum;
  return probability;
}

}  // namespace gapless::testing
