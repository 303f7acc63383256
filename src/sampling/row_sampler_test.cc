// One row of logits to one token: the inverse CDF is swept with a grid of uniforms, so that how often each
// token comes is known up to rounding, not only up to chance.
#include "sampling/row_sampler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "sampling/random.h"
#include "sampling/testing/oracle.h"

namespace gapless {
namespace {

constexpr size_t kScratch = 1 << 20;
#ifdef NDEBUG
constexpr int kRounds = 40;
#else
constexpr int kRounds = 8;  // sanitizers watch every element of every pass
#endif

struct PreparedRow {
  PreparedRow(std::vector<float> l, float temperature, const BlockMath& math = block_math())
      : logits(std::move(l)), scratch(kScratch) {
    const int32_t vocab = int32_t(logits.size()), n_blocks = (vocab + kVocabBlock - 1) / kVocabBlock;
    blocks.resize(size_t(n_blocks));
    group_max.resize(size_t(n_blocks) * kGroupsPerBlock);
    for (int32_t b = 0; b < n_blocks; ++b) {
      const int32_t begin = b * kVocabBlock, n = std::min(kVocabBlock, vocab - begin);
      BlockStats& s = blocks[size_t(b)];
      s.max = math.max(&logits[size_t(begin)], n, &group_max[size_t(b) * kGroupsPerBlock]);
      s.sum = math.exp_sum(&logits[size_t(begin)], n, s.max.max, 1 / temperature,
                           reinterpret_cast<float*>(scratch.data()));
    }
    row = {logits.data(), vocab, blocks, group_max, &math};
  }
  int32_t draw(const SamplingParams& p, double uniform) {
    return p.top_k > 0 || p.top_p < 1 || p.min_p > 0 ? sample_filtered(row, p, uniform, scratch)
                                                     : sample_all(row, p.temperature, uniform, scratch);
  }

  std::vector<float> logits;
  std::vector<BlockStats> blocks;
  std::vector<float> group_max;
  std::vector<std::byte> scratch;
  SampledRow row;
};

// Every token comes as often as its probability says, up to 1.5 steps of the grid (and rounding of float
// weights).
void expect_distribution(const std::vector<float>& logits, const SamplingParams& p, int steps) {
  PreparedRow row(logits, p.temperature);
  std::vector<int> count(logits.size(), 0);
  for (int i = 0; i < steps; ++i) ++count[size_t(row.draw(p, (i + 0.5) / steps))];
  const auto expected = testing::distribution(std::vector<double>(logits.begin(), logits.end()), p);
  for (size_t id = 0; id < logits.size(); ++id) {
    ASSERT_NEAR(count[id], expected[id] * steps, 1.5 + 1e-4 * steps)
        << "token " << id << " of " << logits.size() << ", temperature " << p.temperature << " top_k "
        << p.top_k << " top_p " << p.top_p << " min_p " << p.min_p;
    if (expected[id] == 0) {
      ASSERT_EQ(count[id], 0) << "token " << id << " is not in the draw";
    }
  }
}

std::vector<float> random_logits(std::mt19937& random, size_t n, float spread) {
  std::normal_distribution<float> d(0, spread);
  std::vector<float> l(n);
  for (float& x : l) x = d(random);
  return l;
}

TEST(RowSampler, EqualsTheOracleForAllFilters) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    const size_t sizes[] = {1, 2, 17, 300, 4096, 4097, 9000};
    const size_t n = sizes[random() % 7];
    SamplingParams p;
    p.temperature = float(0.3 + 0.1 * (random() % 15));
    if (random() % 2) p.top_k = int32_t(1 + random() % (random() % 4 ? 50 : 10'000));
    if (random() % 2) p.top_p = float(0.05 + 0.01 * (random() % 95));
    if (random() % 3 == 0) p.min_p = float(0.01 * (random() % 40));
    // Spread 1 is nearly flat: the nucleus is thousands of tokens.
    expect_distribution(random_logits(random, n, random() % 2 ? 1.f : 4.f), p, 300);
  }
}

TEST(RowSampler, TiesAreCutByAscendingId) {
  std::vector<float> logits(10'000, -3.f);
  for (size_t id : {9000, 40, 5000, 4095, 7}) logits[id] = 2.f;
  SamplingParams p;
  p.top_k = 3;
  expect_distribution(logits, p, 300);  // 7, 40, 4095
  p.top_k = 0;
  p.top_p = 0.001f;
  expect_distribution(logits, p, 300);
  p.top_k = 1000;  // cuts among the equal rest
  p.top_p = 1;
  expect_distribution(logits, p, 2000);
  p.top_p = 0.9f;
  expect_distribution(logits, p, 2000);
}

// The larger one has more equal logits than the selection can list.
TEST(RowSampler, AFlatRowOfManyEqualLogits) {
  for (const int32_t vocab : {50'000, 100'000}) {
    SamplingParams p;
    p.top_p = 0.5f;
    PreparedRow row(std::vector<float>(size_t(vocab), 1.25f), 1);
    for (double u : {0.0, 0.25, 0.5, 0.999999}) {
      const int32_t token = row.draw(p, u);
      EXPECT_NEAR(token, u * vocab / 2, 2);
      EXPECT_LT(token, vocab / 2);
    }
    p.top_p = 1;
    p.top_k = 20'000;
    EXPECT_NEAR(row.draw(p, 0.5), 10'000, 2);
    EXPECT_EQ(row.draw(p, 0.9999999), 19'999);
  }
}

TEST(RowSampler, TheEndsOfTheUniformGiveTokensOfTheDraw) {
  std::mt19937 random(5);
  const auto logits = random_logits(random, 9000, 8);
  for (double u : {0.0, 0x1p-53, 1 - 0x1p-53}) {
    for (int kind = 0; kind < 4; ++kind) {
      SamplingParams p;
      p.temperature = kind == 3 ? 0.01f : 1.f;  // most weights are exactly zero
      if (kind == 1) p.top_p = 0.9f;
      if (kind == 2) p.top_k = 40;
      const auto expected = testing::distribution(std::vector<double>(logits.begin(), logits.end()), p);
      PreparedRow row(logits, p.temperature);
      EXPECT_GT(expected[size_t(row.draw(p, u))], 0) << u << " " << kind;
    }
  }
}

TEST(RowSampler, BannedTokensAreNeverDrawn) {
  std::vector<float> logits(5000, -INFINITY);
  logits[4500] = 1;
  logits[100] = 1;
  for (int kind = 0; kind < 3; ++kind) {
    SamplingParams p;
    if (kind == 1) p.top_k = 50;
    if (kind == 2) p.top_p = 0.99f;
    expect_distribution(logits, p, 100);
  }
}

TEST(RowSampler, GreedyTakesTheLowestOfEqualIds) {
  std::vector<float> logits(20'000, 0.5f);
  EXPECT_EQ(sample_greedy(PreparedRow(logits, 1).blocks), 0);
  logits[13'000] = logits[8191] = 0.75f;
  EXPECT_EQ(sample_greedy(PreparedRow(logits, 1).blocks), 8191);
  logits[19'999] = 1;
  EXPECT_EQ(sample_greedy(PreparedRow(logits, 1).blocks), 19'999);
}

TEST(BlockMath, EveryInstructionSetGivesTheSameBits) {
  int count = 0;
  const BlockMath* const* all = all_block_maths(&count);
  std::mt19937 random(9);
  for (int32_t n : {1, 15, 16, 63, 64, 65, 1000, kVocabBlock}) {
    auto x = random_logits(random, size_t(n), 20);
    x[size_t(n) / 2] = -INFINITY;
    std::vector<float> want_w(kVocabBlock), w(kVocabBlock), want_groups(kGroupsPerBlock),
        groups(kGroupsPerBlock);
    const BlockMax want = all[0]->max(x.data(), n, want_groups.data());
    const float want_sum = all[0]->exp_sum(x.data(), n, want.max, 0.7f, want_w.data());
    EXPECT_EQ(want.max, *std::max_element(x.begin(), x.end()));
    EXPECT_EQ(want.argmax, std::max_element(x.begin(), x.end()) - x.begin());
    for (int k = 1; k < count; ++k) {
      const BlockMax got = all[k]->max(x.data(), n, groups.data());
      const float sum = all[k]->exp_sum(x.data(), n, want.max, 0.7f, w.data());
      EXPECT_EQ(got.max, want.max);
      EXPECT_EQ(got.argmax, want.argmax);
      EXPECT_EQ(groups, want_groups);
      EXPECT_EQ(std::memcmp(&sum, &want_sum, sizeof(sum)), 0) << sum << " " << want_sum;
      EXPECT_EQ(std::memcmp(w.data(), want_w.data(), size_t(n) * sizeof(float)), 0);
    }
  }
}

// Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
TEST(Random, PhiloxKnownAnswers) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformDependsOnEveryPartOfItsKey) {
  const auto u = [](uint64_t seed, int32_t choice, int32_t index) {
    return random_uniform(seed, choice, index, RandomPurpose::kSampleToken);
  };
  EXPECT_EQ(u(1, 2, 3), u(1, 2, 3));
  EXPECT_NE(u(1, 2, 3), u(1ull << 40, 2, 3));
  EXPECT_NE(u(1, 2, 3), u(1, 3, 3));
  EXPECT_NE(u(1, 2, 3), u(1, 2, 4));
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_GE(u(7, 0, i), 0);
    ASSERT_LT(u(7, 0, i), 1);
    sum += u(7, 0, i);
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);  // seven standard deviations
}

}  // namespace
}  // namespace gapless
