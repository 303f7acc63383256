#include <limits>
#include <utility>

#include "sampling/row_weights.h"

namespace gapless {
namespace {

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
  bool has(uint32_t k, int32_t id) const { return (k > key) | ((k == key) & (id <= last_id)); }
};

// Ascending with the logit; both zeros have one.
uint32_t key_of(float logit) {
  const uint32_t b = numeric::bits(logit + 0.f);
  return b & 0x80000000 ? ~b : b | 0x80000000;
}

// The shortest prefix that has `count` tokens or `weight`, by three passes that each fix 11 or 10 bits of the
// key: over the row, and as soon as few enough tokens are left in question, over a list of those. A nearly
// flat row of 262,144 tokens leaves a fifth of them after the first pass.
class RadixSelect {
 public:
  RadixSelect(const SampledRow& row, float m, float scale, std::span<std::byte> scratch)
      : row_(row), m_(m), scale_(scale) {
    weights_ = carve<float>(scratch, kVocabBlock);
    bins_ = carve<Bin>(scratch, 2048);
    list_ = carve<Listed>(scratch, kMaxListed + 1);
  }

  Prefix shortest(int64_t count, double weight) {
    Prefix above;  // what lies above the bins looked at
    int64_t n_above = 0;
    uint32_t fixed = 0;
    listed_ = kNotListed;
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
      if (listed_ == kNotListed && bins_[size_t(bin)].count <= int64_t(kMaxListed)) list(fixed, shift);
    }
    return among_equals(fixed, above, n_above, count, weight);
  }

 private:
  struct Bin {
    int64_t count;
    double weight;
  };
  struct Listed {
    int32_t id;
    float weight;
  };
  static constexpr size_t kMaxListed = 65'536, kNotListed = kMaxListed + 1;

  // f(id, weight) for all tokens that may still be in question, ascending; stops when f returns false.
  template <class F>
  void for_each(F f) {
    if (listed_ != kNotListed) {
      for (const Listed& token : list_.first(listed_))
        if (!f(token.id, token.weight)) return;
      return;
    }
    for_each_block(row_, m_, scale_, weights_, [&](int32_t begin, std::span<const float> w) {
      for (int32_t i = 0; i < int32_t(w.size()); ++i)
        if (!f(begin + i, w[size_t(i)])) return false;
      return true;
    });
  }

  // The tokens whose key begins with `fixed`, at most kMaxListed. Each is written, and stays if it is one.
  void list(uint32_t fixed, int shift) {
    size_t n = 0;
    for_each([&](int32_t id, float weight) {
      list_[n] = {id, weight};
      n += key_of(row_.logits[id]) >> shift == fixed;
      return true;
    });
    listed_ = n;
  }

  void fill(uint32_t fixed, int shift, int bits) {
    std::fill(bins_.begin(), bins_.end(), Bin{0, 0});
    const uint32_t mask = (1u << bits) - 1;
    for_each([&](int32_t id, float weight) {
      const uint32_t key = key_of(row_.logits[id]);
      if (shift + bits < 32 && key >> (shift + bits) != fixed) return true;
      Bin& bin = bins_[key >> shift & mask];
      ++bin.count;
      bin.weight += double(weight);
      return true;
    });
  }

  Prefix among_equals(uint32_t key, const Prefix& above, int64_t n_above, int64_t count, double weight) {
    Prefix prefix{key, -1, above.weight};
    for_each([&](int32_t id, float token_weight) {
      if (key_of(row_.logits[id]) != key) return true;
      prefix.last_id = id;
      prefix.weight += double(token_weight);
      return ++n_above < count && prefix.weight < weight;
    });
    return prefix;
  }

  const SampledRow& row_;
  const float m_, scale_;
  std::span<float> weights_;
  std::span<Bin> bins_;
  std::span<Listed> list_;
  size_t listed_ = kNotListed;  // how many the list has; kNotListed: the whole row is in question
};

}  // namespace

int32_t sample_by_radix(const SampledRow& row, const SamplingParams& p, float m, double uniform,
                        std::span<std::byte> scratch) {
  const float scale = 1 / p.temperature;
  const size_t n_blocks = row.blocks.size();
  const auto block_weight = carve<double>(scratch, n_blocks);
  const auto weights = carve<float>(scratch, kVocabBlock);
  RadixSelect select(row, m, scale, scratch);
  Prefix kept{0, row.vocab, 0};
  const bool by_k = p.top_k > 0 && p.top_k < row.vocab;
  if (by_k) kept = select.shortest(p.top_k, std::numeric_limits<double>::infinity());
  if (p.top_p < 1)
    kept = select.shortest(row.vocab,
                           double(p.top_p) * (by_k ? kept.weight : total_weight(row.blocks, m, scale)));

  constexpr int32_t kSums = 4;
  // The weights of a block, zero for what is out of the draw; returns their sum.
  auto keep = [&](size_t block) {
    const int32_t begin = int32_t(block) * kVocabBlock, n = std::min(kVocabBlock, row.vocab - begin);
    const float* logits = row.logits + begin;
    row.math->exp_sum(logits, n, m, scale, weights.data());
    double sums[kSums] = {};  // one would be a chain of additions
    for (int32_t i = 0; i < n; ++i) {
      float& w = weights[size_t(i)];
      w = ((w >= p.min_p) & kept.has(key_of(logits[i]), begin + i)) ? w : 0;
      sums[i % kSums] += double(w);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  };
  double total = 0;
  for (size_t b = 0; b < n_blocks; ++b) total += block_weight[b] = keep(b);
  const double target = uniform * total;
  double sum = 0;
  size_t block = 0;
  for (size_t b = 0; b < n_blocks; ++b) {
    if (!(block_weight[b] > 0)) continue;
    block = b;
    if (sum + block_weight[b] > target) break;
    sum += block_weight[b];
  }
  keep(block);
  const int32_t begin = int32_t(block) * kVocabBlock;
  return begin + walk(weights.first(size_t(std::min(kVocabBlock, row.vocab - begin))), sum, 1, target);
}

}  // namespace gapless
