#include "sampling/row_sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "kernels/numeric.h"

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

// Pieces of the worker's scratch.
template <class T>
std::span<T> carve(std::span<std::byte>& scratch, size_t n) {
  const size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
  CHECK_LE(bytes, scratch.size());
  T* const p = reinterpret_cast<T*>(scratch.data());
  scratch = scratch.subspan(bytes);
  return {p, n};
}

float maximum(std::span<const BlockStats> blocks) {
  float m = blocks[0].max.max;
  for (const BlockStats& b : blocks) m = b.max.max > m ? b.max.max : m;
  return m;
}

// The sum of the whole row's weights exp((logit - m) * scale), m the row's maximum.
double total_weight(std::span<const BlockStats> blocks, float m, float scale) {
  double total = 0;
  for (const BlockStats& b : blocks) total += double(b.sum) * double(numeric::exp((b.max.max - m) * scale));
  return total;
}

// Visits the weights of a row block by block: f(first id, weights); stops when f returns false.
template <class F>
void for_each_block(const SampledRow& row, float m, float scale, std::span<float> weights, F f) {
  for (int32_t begin = 0; begin < row.vocab; begin += kVocabBlock) {
    const int32_t n = std::min(kVocabBlock, row.vocab - begin);
    row.math->exp_sum(row.logits + begin, n, m, scale, weights.data());
    if (!f(begin, std::span<const float>(weights.data(), size_t(n)))) return;
  }
}

// A beginning of the order of tokens: all with a larger key, and those with this key up to last_id.
struct Prefix {
  uint32_t key = 0;
  int32_t last_id = 0;
  double weight = 0;
  bool has(uint32_t k, int32_t id) const { return k > key || (k == key && id <= last_id); }
};

// Ascending with the logit; both zeros have one.
uint32_t key_of(float logit) {
  const uint32_t b = numeric::bits(logit + 0.f);
  return b & 0x80000000 ? ~b : b | 0x80000000;
}

// The shortest prefix that has `count` tokens or `weight`, by three passes over the row that each fix 11 or
// 10 bits of the key.
class RadixSelect {
 public:
  RadixSelect(const SampledRow& row, float m, float scale, std::span<std::byte> scratch)
      : row_(row), m_(m), scale_(scale) {
    weights_ = carve<float>(scratch, kVocabBlock);
    bins_ = carve<Bin>(scratch, 2048);
  }

  Prefix shortest(int64_t count, double weight) {
    Prefix above;  // what lies above the bins looked at
    int64_t n_above = 0;
    uint32_t fixed = 0;
    for (const auto& [shift, bits] : {std::pair{21, 11}, {10, 11}, {0, 10}}) {
      fill(fixed, shift, bits);
      int32_t bin = (1 << bits) - 1;
      int32_t lowest = bin;  // with tokens in it
      for (; bin >= 0; --bin) {
        const Bin& b = bins_[size_t(bin)];
        if (b.count == 0) continue;
        lowest = bin;
        if (n_above + b.count >= count || above.weight + b.weight >= weight) break;
        n_above += b.count;
        above.weight += b.weight;
      }
      if (bin < 0) {  // rounding: the weights of the bins do not quite reach it
        bin = lowest;
        n_above -= bins_[size_t(bin)].count;
        above.weight -= bins_[size_t(bin)].weight;
      }
      fixed = fixed << bits | uint32_t(bin);
    }
    return among_equals(fixed, above, n_above, count, weight);
  }

 private:
  struct Bin {
    int64_t count;
    double weight;
  };

  void fill(uint32_t fixed, int shift, int bits) {
    std::fill(bins_.begin(), bins_.end(), Bin{0, 0});
    const uint32_t mask = (1u << bits) - 1;
    for_each_block(row_, m_, scale_, weights_, [&](int32_t begin, std::span<const float> w) {
      for (size_t i = 0; i < w.size(); ++i) {
        const uint32_t key = key_of(row_.logits[size_t(begin) + i]);
        if (shift + bits < 32 && key >> (shift + bits) != fixed) continue;
        Bin& bin = bins_[key >> shift & mask];
        ++bin.count;
        bin.weight += double(w[i]);
      }
      return true;
    });
  }

  Prefix among_equals(uint32_t key, const Prefix& above, int64_t n_above, int64_t count, double weight) {
    Prefix prefix{key, -1, above.weight};
    for_each_block(row_, m_, scale_, weights_, [&](int32_t begin, std::span<const float> w) {
      for (size_t i = 0; i < w.size(); ++i) {
        if (key_of(row_.logits[size_t(begin) + i]) != key) continue;
        prefix.last_id = begin + int32_t(i);
        prefix.weight += double(w[i]);
        if (++n_above >= count || prefix.weight >= weight) return false;
      }
      return true;
    });
    return prefix;
  }

  const SampledRow& row_;
  const float m_, scale_;
  std::span<float> weights_;
  std::span<Bin> bins_;
};

int32_t sample_by_radix(const SampledRow& row, const SamplingParams& p, float m, float scale, double uniform,
                        std::span<std::byte> scratch) {
  RadixSelect select(row, m, scale, scratch);
  constexpr double kNoWeight = std::numeric_limits<double>::infinity();
  Prefix kept = select.shortest(p.top_k > 0 ? std::min(p.top_k, row.vocab) : row.vocab, kNoWeight);
  if (p.top_p < 1) kept = select.shortest(row.vocab, double(p.top_p) * kept.weight);
  auto keeps = [&](int32_t id, float w) { return w >= p.min_p && kept.has(key_of(row.logits[id]), id); };

  const auto weights = carve<float>(scratch, kVocabBlock);
  double total = 0;
  auto add = [&](int32_t begin, std::span<const float> w) {
    for (size_t i = 0; i < w.size(); ++i)
      if (keeps(begin + int32_t(i), w[i])) total += double(w[i]);
    return true;
  };
  for_each_block(row, m, scale, weights, add);
  const double target = uniform * total;
  int32_t token = 0;
  double sum = 0;
  for_each_block(row, m, scale, weights, [&](int32_t begin, std::span<const float> w) {
    for (size_t i = 0; i < w.size(); ++i) {
      if (!keeps(begin + int32_t(i), w[i]) || w[i] == 0) continue;
      token = begin + int32_t(i);
      sum += double(w[i]);
      if (sum > target) return false;
    }
    return true;
  });
  return token;
}

// All tokens whose logit reaches the K-th largest group maximum, in order; empty if that is not a small set.
std::span<Candidate> find_candidates(const SampledRow& row, int32_t at_least, std::span<std::byte>& scratch) {
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
  const auto candidates = carve<Candidate>(scratch, kMaxCandidates);

  size_t n = 0;
  for (size_t g = 0; g < row.group_max.size(); ++g) {
    if (!(row.group_max[g] >= cut)) continue;
    const int32_t begin = int32_t(g) * kMaxGroup, end = std::min(begin + kMaxGroup, row.vocab);
    for (int32_t id = begin; id < end; ++id) {
      if (!(row.logits[id] >= cut)) continue;
      if (n == candidates.size()) return {};
      candidates[n++] = {row.logits[id], id};
    }
  }
  std::sort(candidates.begin(), candidates.begin() + ptrdiff_t(n));
  return candidates.first(n);
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
  int32_t token =
      row.blocks[block]
          .max.argmax;  // if rounding lets the sum end below the target, the last one that has weight
  for (int32_t i = 0; i < n; ++i) {
    if (!(weights[size_t(i)] > 0)) continue;
    token = i;
    sum += factor * double(weights[size_t(i)]);
    if (sum > target) break;
  }
  return begin + token;
}

int32_t sample_filtered(const SampledRow& row, const SamplingParams& p, double uniform,
                        std::span<std::byte> scratch) {
  const float m = maximum(row.blocks), scale = 1 / p.temperature;
  const std::span<std::byte> all_scratch = scratch;
  const bool by_k = p.top_k > 0 && p.top_k < row.vocab;
  const auto candidates = find_candidates(row, by_k ? p.top_k : kNucleusCandidates, scratch);
  if (candidates.empty()) return sample_by_radix(row, p, m, scale, uniform, all_scratch);

  const size_t limit = by_k ? std::min(candidates.size(), size_t(p.top_k)) : candidates.size();
  const auto weights = carve<float>(scratch, candidates.size());
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
  if (kept == limit && !by_k && limit < size_t(row.vocab))
    return sample_by_radix(row, p, m, scale, uniform, all_scratch);

  const double target = uniform * kept_weight;
  double sum = 0;
  size_t last = 0;
  for (size_t i = 0; i < kept; ++i) {
    if (!(weights[i] > 0)) break;  // descending
    last = i;
    sum += double(weights[i]);
    if (sum > target) break;
  }
  return candidates[last].id;
}

double log_sum_exp(std::span<const BlockStats> blocks) {
  const float m = maximum(blocks);
  return double(m) + std::log(total_weight(blocks, m, 1));
}

}  // namespace gapless
