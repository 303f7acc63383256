#include "sampling/row_sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "sampling/row_weights.h"

namespace gapless {
namespace {

// Without top_k: how many candidates the nucleus is looked for in. With a temperature of 1 or less it nearly
// always fits.
constexpr int32_t kNucleusCandidates = 256;
constexpr size_t kMaxCandidates = 16'384;

struct Candidate {
  float logit;
  int32_t id;
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

struct Candidates {
  std::span<Candidate> in_order;
  bool all = false;  // that have any weight
};

// All tokens whose logit reaches the K-th largest group maximum; none if that is not a small set.
Candidates find_candidates(const SampledRow& row, int32_t at_least, std::span<std::byte>& scratch) {
  float cut = -std::numeric_limits<float>::infinity();
  if (at_least <= int32_t(row.group_max.size())) {
    std::span<std::byte> work = scratch;
    const auto maxima = carve<float>(work, row.group_max.size());
    std::copy(row.group_max.begin(), row.group_max.end(), maxima.begin());
    std::nth_element(maxima.begin(), maxima.begin() + (at_least - 1), maxima.end(), std::greater<>());
    cut = maxima[size_t(at_least) - 1];
  } else if (row.vocab > kVocabBlock) {
    return {};
  }
  // Few groups may have a token that is not banned: a grammar can leave a handful of the vocabulary.
  const bool all = cut == -std::numeric_limits<float>::infinity();
  const auto candidates = carve<Candidate>(scratch, kMaxCandidates);

  size_t n = 0;
  for (size_t g = 0; g < row.group_max.size(); ++g) {
    if (!(row.group_max[g] >= cut)) continue;
    const int32_t begin = int32_t(g) * kMaxGroup, end = std::min(begin + kMaxGroup, row.vocab);
    for (int32_t id = begin; id < end; ++id) {
      if (!(all ? row.logits[id] > cut : row.logits[id] >= cut)) continue;
      if (n == candidates.size()) return {};
      candidates[n++] = {row.logits[id], id};
    }
  }
  std::sort(candidates.begin(), candidates.begin() + ptrdiff_t(n));
  return {candidates.first(n), all};
}

// nullopt: the cut is not among the candidates.
std::optional<int32_t> draw_from_candidates(const SampledRow& row, const SamplingParams& p, float m,
                                            int32_t at_least, double uniform, std::span<std::byte> scratch) {
  const float scale = 1 / p.temperature;
  const bool by_k = p.top_k > 0 && p.top_k < row.vocab;
  const auto [candidates, all] = find_candidates(row, at_least, scratch);
  if (candidates.empty()) return std::nullopt;
  const size_t limit = by_k ? std::min(candidates.size(), size_t(p.top_k)) : candidates.size();
  const auto weights = carve<float>(scratch, limit);
  double total = by_k ? 0 : p.top_p < 1 ? total_weight(row.blocks, m, scale) : 1;
  for (size_t i = 0; i < limit; ++i) {
    weights[i] = numeric::exp((candidates[i].logit - m) * scale);
    if (by_k) total += double(weights[i]);
  }
  double kept_weight = 0;
  size_t kept = 0;
  for (; kept < limit; ++kept) {
    if (kept > 0 && ((p.top_p < 1 && kept_weight >= double(p.top_p) * total) || weights[kept] < p.min_p))
      break;
    kept_weight += double(weights[kept]);
  }
  if (kept == limit && !by_k && !all) return std::nullopt;
  return candidates[size_t(walk(weights.first(kept), 0, 1, uniform * kept_weight))].id;
}

}  // namespace

int32_t sample_greedy(std::span<const BlockStats> blocks) {
  float best = blocks[0].max.max;
  int32_t token = blocks[0].max.argmax;
  for (size_t b = 1; b < blocks.size(); ++b) {
    if (!(blocks[b].max.max > best)) continue;
    best = blocks[b].max.max;
    token = int32_t(b) * kVocabBlock + blocks[b].max.argmax;
  }
  return token;
}

int32_t sample_all(const SampledRow& row, float temperature, double uniform, std::span<std::byte> scratch) {
  const float m = maximum(row.blocks), scale = 1 / temperature;
  const double target = uniform * total_weight(row.blocks, m, scale);
  double sum = 0;
  size_t block = 0;
  for (size_t b = 0; b < row.blocks.size(); ++b) {
    const double factor = double(numeric::exp((row.blocks[b].max.max - m) * scale));
    if (!(factor * double(row.blocks[b].sum) > 0)) continue;
    block = b;
    if (sum + factor * double(row.blocks[b].sum) > target) break;
    sum += factor * double(row.blocks[b].sum);
  }
  const auto weights = carve<float>(scratch, kVocabBlock);
  const int32_t begin = int32_t(block) * kVocabBlock, n = std::min(kVocabBlock, row.vocab - begin);
  const float reference = row.blocks[block].max.max;
  row.math->exp_sum(row.logits + begin, n, reference, scale, weights.data());
  const double factor = double(numeric::exp((reference - m) * scale));
  return begin + walk(weights.first(size_t(n)), sum, factor, target);
}

int32_t sample_filtered(const SampledRow& row, const SamplingParams& p, double uniform,
                        std::span<std::byte> scratch) {
  const float m = maximum(row.blocks);
  const bool by_k = p.top_k > 0 && p.top_k < row.vocab;
  // Half of the groups give some 0.7 candidates for each group, 3,000 for 262k tokens: still a tenth of what
  // the radix passes cost.
  const int32_t more = std::max(kNucleusCandidates, int32_t(row.group_max.size()) / 2);
  for (int32_t at_least : {by_k ? p.top_k : kNucleusCandidates, by_k ? 0 : more}) {
    if (at_least == 0) break;
    if (const auto token = draw_from_candidates(row, p, m, at_least, uniform, scratch)) return *token;
  }
  return sample_by_radix(row, p, m, uniform, scratch);
}

double log_sum_exp(std::span<const BlockStats> blocks) {
  const float m = maximum(blocks);
  return double(m) + std::log(total_weight(blocks, m, 1));
}

}  // namespace gapless
