// The sampler as the worker uses it: ops on a device, slots, results.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "sampling/testing/oracle.h"
#include "sampling/testing/sampler_bench.h"

namespace gapless {
namespace {

#ifdef NDEBUG
constexpr bool kOptimised = true;
#else
constexpr bool kOptimised = false;
#endif

using testing::argmax;
using testing::Bench;
using testing::doubles;
using testing::drawn;
using testing::greedy;
using testing::Logits;
using testing::random_row;

// --- logprobs ---

TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int32_t vocab : {3, 512, 4096, 5000, 49'152}) {
    Bench bench(vocab, {1}, 2);
    SamplingParams p = drawn(seed, 1.7f);
    p.top_k = 5;
    p.logit_bias = {{0, 30.f}, {2, -100.f}};
    p.frequency_penalty = 1.5f;
    p.repetition_penalty = 1.3f;
    p.min_tokens = 5;
    p.top_logprobs = 20;
    bench.admit(3, p, {0, 1}, {2});
    const auto sampled = random_row(random, vocab, 6), prompt = random_row(random, vocab, 2);
    const int32_t target = int32_t(random() % uint32_t(vocab));
    const auto results = bench.run({{3, target}, {3, -1}}, {prompt, sampled});

    for (int i : {0, 1}) {
      const auto& logits = i == 0 ? prompt : sampled;
      const double lse = testing::log_sum_exp(doubles(logits));
      const SampleResult& r = results[size_t(i)];
      EXPECT_EQ(r.token < 0, i == 0);
      const int32_t token = i == 0 ? target : r.token;
      EXPECT_NEAR(r.logprob, double(logits[size_t(token)]) - lse, 2e-5);
      std::vector<int32_t> order(static_cast<size_t>(vocab));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
      ASSERT_EQ(r.n_top, std::min(20, vocab));
      for (int32_t t = 0; t < r.n_top; ++t) {
        EXPECT_EQ(r.top[t].id, order[size_t(t)]);
        EXPECT_NEAR(r.top[t].logprob, double(logits[size_t(r.top[t].id)]) - lse, 2e-5);
      }
    }
  }
}

TEST(Sampler, TopLogprobsOfEqualLogitsComeByAscendingId) {
  Bench bench(9000, {});
  SamplingParams p = greedy();
  p.top_logprobs = 4;
  bench.admit(1, p);
  std::vector<float> logits(9000, 0);
  for (size_t id : {8500, 4500, 30, 20}) logits[id] = 2;
  logits[700] = 3;
  const SampleResult r = bench.one(1, logits);
  ASSERT_EQ(r.n_top, 4);
  const int32_t want[] = {700, 20, 30, 4500};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(r.top[i].id, want[i]);
}

TEST(Sampler, WithoutLogprobsThereAreNone) {
  Bench bench(100, {});
  bench.admit(1, greedy());
  const SampleResult r = bench.one(1, std::vector<float>(100, 1.f));
  EXPECT_EQ(r.n_top, 0);
  EXPECT_EQ(r.logprob, 0);
}

// --- state ---

TEST(Sampler, RowsThatEmitNothingAdvanceNothing) {
  std::mt19937 random(4);
  const auto a = random_row(random, 600), b = random_row(random, 600);
  const auto second_token = [&](bool with_prompt_rows) {
    Bench bench(600, {});
    SamplingParams p = drawn(9);
    p.presence_penalty = 2;
    p.top_logprobs = 0;
    bench.admit(2, p);
    if (with_prompt_rows) bench.run({{2, 5}, {2, 6}}, {a, b});
    EXPECT_EQ(bench.future(2).token, -1);
    const SampleResult first = bench.one(2, a);
    EXPECT_EQ(bench.future(2).token, first.token);
    EXPECT_EQ(bench.future(2).output_index, 0);
    if (with_prompt_rows) bench.run({{2, 5}}, {b});
    const SampleResult second = bench.one(2, b);
    EXPECT_EQ(bench.future(2).output_index, 1);
    return second.token;
  };
  EXPECT_EQ(second_token(false), second_token(true));
}

// A-TX-1: penalties look at the whole answer, here 400 tokens; they equal a recount at every step, also when
// the request is admitted again in the middle, as after a retraction.
TEST(Sampler, PenaltiesEqualARecount_A_TX_1) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr int32_t kVocab = 700;
  for (int kind = 0; kind < 3; ++kind) {
    SamplingParams p = greedy();
    if (kind != 1) p.frequency_penalty = 0.3f;
    if (kind != 1) p.presence_penalty = kind == 0 ? 0.5f : -0.7f;
    if (kind != 0) p.repetition_penalty = 1.25f;
    p.logit_bias = {{5, 2.5f}, {6, -1.5f}, {7, -100.f}};
    const std::vector<int32_t> prompt{5, 9, 9, 30, 31};
    std::vector<int32_t> outputs;
    Bench bench(kVocab, {2});
    bench.admit(1, p, prompt);
    const auto base = random_row(random, kVocab, 2);  // the same favourites again and again
    for (int step = 0; step < 400; ++step) {
      auto logits = base;
      for (float& x : logits) x += float(random() % 1000) * 1e-3f;
      if (random() % 40 == 0) bench.admit(1, p, prompt, outputs);
      const auto want = testing::changed_logits(logits, p, prompt, outputs, {2});
      const int32_t token = bench.one(1, logits).token;
      ASSERT_NEAR(want[size_t(token)], want[size_t(argmax(want))], 1e-4) << "step " << step;
      outputs.push_back(token);
    }
    // A repetition penalty settles on a few favourites; the others drive the answer on.
    if (kind == 0) {
      EXPECT_GT(std::set<int32_t>(outputs.begin(), outputs.end()).size(), 20u);
    }
  }
}

TEST(Sampler, CountsOfSeveralThousandTokensFit) {
  SamplingParams p = greedy();
  p.presence_penalty = 0.1f;
  p.max_tokens = 3000;
  Bench bench(5000, {});
  bench.admit(1, p, {1, 2, 3});
  std::vector<float> logits(5000, 0.f);
  for (int i = 0; i < 3000; ++i)
    ASSERT_EQ(bench.one(1, logits).token, i);  // each token once, then it is behind the rest
}

// --- same answer whatever the crowd ---

TEST(Sampler, TheSameTokenAloneAndInACrowdForAnyNumberOfWorkers) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr int32_t kVocab = 9001, kRequests = 12, kSteps = 6;
  std::vector<SamplingParams> params;
  for (int i = 0; i < kRequests; ++i) {
    SamplingParams p = i % 4 == 0 ? greedy() : drawn(random(), 0.5f + 0.25f * float(i % 5));
    if (i % 3 == 1) p.top_p = 0.8f;
    if (i % 5 == 2) p.top_k = 30;
    if (i % 4 == 3) p.min_p = 0.05f;
    if (i % 2) p.frequency_penalty = 0.5f;
    p.top_logprobs = i % 3 == 0 ? -1 : i % 3 * 5;
    params.push_back(p);
  }
  std::vector<Logits> steps(kSteps);
  for (auto& step : steps)
    for (int i = 0; i < kRequests; ++i) step.push_back(random_row(random, kVocab, i % 2 ? 1.f : 4.f));

  std::vector<std::vector<SampleResult>> want(kSteps);  // alone, one worker
  for (int i = 0; i < kRequests; ++i) {
    Bench bench(kVocab, {3}, 1);
    bench.admit(1, params[size_t(i)], {8, 9});
    for (int s = 0; s < kSteps; ++s) want[size_t(s)].push_back(bench.one(1, steps[size_t(s)][size_t(i)]));
  }
  for (int threads : {1, 2, 3}) {
    for (int32_t max_rows : {5, 40}) {
      Bench bench(kVocab, {3}, threads, max_rows);
      for (int i = 0; i < kRequests; ++i) bench.admit(20 + i, params[size_t(i)], {8, 9});
      for (int s = 0; s < kSteps; ++s) {
        std::vector<int> order(kRequests);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        std::vector<LogitRow> rows;
        Logits logits;
        for (int i : order) {
          rows.push_back({20 + i, -1});
          logits.push_back(steps[size_t(s)][size_t(i)]);
        }
        const auto got = bench.run(rows, logits);
        for (size_t k = 0; k < order.size(); ++k) {
          const SampleResult &a = got[k], &b = want[size_t(s)][size_t(order[k])];
          ASSERT_EQ(a.token, b.token) << "request " << order[k] << " step " << s << " threads " << threads;
          ASSERT_EQ(std::memcmp(&a.logprob, &b.logprob, sizeof(float)), 0);
          ASSERT_EQ(a.n_top, b.n_top);
          for (int t = 0; t < a.n_top; ++t) ASSERT_EQ(a.top[t], b.top[t]);
        }
      }
    }
  }
}

// --- rows of the list of known failures ---

TEST(Sampler, LogitBiasReallyBans_A_PA_6) {
  Bench bench(300, {});
  SamplingParams p = drawn(1, 2);
  p.max_tokens = 5000;
  p.logit_bias = {{17, -100.f}, {299, -100.f}};
  bench.admit(1, p);
  std::vector<float> logits(300, 0);
  logits[17] = 150;  // a bias that was only added would leave it the favourite
  logits[299] = 3;
  for (int i = 0; i < 2000; ++i) {
    const int32_t token = bench.one(1, logits).token;
    ASSERT_NE(token, 17);
    ASSERT_NE(token, 299);
  }
  p.logit_bias = {{42, 100.f}};
  bench.admit(1, p);
  logits[17] = 0;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(bench.one(1, logits).token, 42);
  p.logit_bias = {};
  p.temperature = 0;
  bench.admit(1, p);
  EXPECT_EQ(bench.one(1, logits).token, 299);
}

TEST(Sampler, MinTokensBansEveryEndTokenAndCountsOutputOnly_A_MT_1) {
  const std::vector<int32_t> eos{2, 90};
  SamplingParams p = greedy();
  p.min_tokens = 50;
  p.stop_token_ids = {33};
  std::vector<float> logits(100, 0);
  logits[2] = 9;
  logits[90] = 8;
  logits[33] = 7;
  logits[5] = 1;
  for (bool again : {false, true}) {  // admitted again after 20 tokens
    Bench bench(100, eos);
    bench.admit(1, p, std::vector<int32_t>(60, 4));  // a prompt longer than min_tokens
    for (int i = 0; i < 50; ++i) {
      if (again && i == 20) bench.admit(1, p, std::vector<int32_t>(60, 4), std::vector<int32_t>(20, 5));
      const int32_t token = bench.one(1, logits).token;
      ASSERT_EQ(token, 5) << "output " << i;
      ASSERT_EQ(ends_by_token(p, eos, i, token), TokenEnd::kNo);
    }
    const int32_t token = bench.one(1, logits).token;
    EXPECT_EQ(token, 2);
    EXPECT_EQ(ends_by_token(p, eos, 50, token), TokenEnd::kEos);
  }
  Bench without_eos(100, {});
  without_eos.admit(1, p);
  EXPECT_EQ(without_eos.one(1, logits).token, 2);  // not an end token of this model
}

TEST(Sampler, EndsByToken) {
  const std::vector<int32_t> eos{2, 90};
  SamplingParams p = greedy();
  p.max_tokens = 10;
  p.stop_token_ids = {33};
  EXPECT_EQ(ends_by_token(p, eos, 0, 2), TokenEnd::kEos);
  EXPECT_EQ(ends_by_token(p, eos, 0, 90), TokenEnd::kEos);
  EXPECT_EQ(ends_by_token(p, eos, 0, 33), TokenEnd::kStopToken);
  EXPECT_EQ(ends_by_token(p, eos, 0, 34), TokenEnd::kNo);
  EXPECT_EQ(ends_by_token(p, eos, 8, 34), TokenEnd::kNo);
  EXPECT_EQ(ends_by_token(p, eos, 9, 34), TokenEnd::kLength);
  EXPECT_EQ(ends_by_token(p, eos, 9, 2), TokenEnd::kEos);
  p.ignore_eos = true;
  EXPECT_EQ(ends_by_token(p, eos, 0, 2), TokenEnd::kNo);
  EXPECT_EQ(ends_by_token(p, eos, 0, 33), TokenEnd::kStopToken);
  p.min_tokens = 10;  // a token that is banned, but was forced, ends by length only
  EXPECT_EQ(ends_by_token(p, eos, 0, 33), TokenEnd::kNo);
  EXPECT_EQ(ends_by_token(p, eos, 9, 33), TokenEnd::kLength);
}

std::vector<int32_t> answer(const SamplingParams& p, int length) {
  Bench bench(400, {});
  bench.admit(1, p);
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back(bench.one(1, std::vector<float>(400, 0.f)).token);
  return tokens;
}

TEST(Sampler, AnotherSeedOrChoiceGivesAnotherAnswer_A_SD_2) {
  std::set<std::vector<int32_t>> answers;
  for (uint64_t seed : {1, 2, 3, 4, 5}) answers.insert(answer(drawn(seed), 20));
  EXPECT_EQ(answers.size(), 5u);
  SamplingParams p = drawn(1);
  for (p.choice = 1; p.choice < 5; ++p.choice) answers.insert(answer(p, 20));
  EXPECT_EQ(answers.size(), 9u);
  EXPECT_EQ(answer(drawn(3), 20), answer(drawn(3), 20));
}

TEST(Sampler, ParametersDoNotLeakToNeighbours_A_SD_3) {
  Bench bench(200, {7});
  SamplingParams banned = drawn(5, 0.8f), free = banned;
  banned.min_tokens = 100;
  banned.ignore_eos = true;
  banned.logit_bias = {{8, -100.f}};
  bench.admit(1, banned);
  bench.admit(2, free);
  std::vector<float> logits(200, 0);
  logits[7] = logits[8] = 8;
  int free_ends = 0, free_biased = 0;
  for (int i = 0; i < 50; ++i) {
    const auto r = bench.run({{1, -1}, {2, -1}}, {logits, logits});
    EXPECT_NE(r[0].token, 7);
    EXPECT_NE(r[0].token, 8);
    free_ends += r[1].token == 7;
    free_biased += r[1].token == 8;
  }
  EXPECT_GT(free_ends, 5);
  EXPECT_GT(free_biased, 5);
}

// --- the draw ---

// Chi-square over a fixed seed: 30 tokens, 20,000 draws. 99.99 % of correct samplers with another seed stay
// below 68.
TEST(Sampler, DrawsFollowTheDistribution) {
  std::mt19937 random(1);
  const auto logits = random_row(random, 30, 1);
  for (int kind = 0; kind < 3; ++kind) {
    SamplingParams p = drawn(1234, 1.5f);
    p.max_tokens = 30'000;
    if (kind == 1) p.top_p = 0.9f;
    if (kind == 2) p.top_k = 12;
    Bench bench(30, {});
    bench.admit(1, p);
    constexpr int kDraws = 20'000;
    std::vector<double> count(30, 0);
    for (int i = 0; i < kDraws; ++i) ++count[size_t(bench.one(1, logits).token)];
    const auto expected = testing::distribution(doubles(logits), p);
    double chi_square = 0;
    for (size_t id = 0; id < 30; ++id) {
      if (expected[id] == 0)
        EXPECT_EQ(count[id], 0);
      else
        chi_square += std::pow(count[id] - expected[id] * kDraws, 2) / (expected[id] * kDraws);
    }
    EXPECT_LT(chi_square, 68) << kind;
    EXPECT_GT(chi_square, 1) << "too even for draws";
  }
}

TEST(Sampler, ARowWithEverythingBannedStillGivesAToken) {
  Bench bench(3, {0, 1, 2});
  SamplingParams p = drawn(1);
  p.min_tokens = 5;
  p.top_logprobs = 3;
  bench.admit(1, p);
  const SampleResult r = bench.one(1, {1, 2, 3});
  EXPECT_GE(r.token, 0);
  EXPECT_LT(r.token, 3);
  EXPECT_TRUE(std::isfinite(r.logprob));
}

TEST(Sampler, NotANumberDoesNoHarmToNeighbours) {
  Bench bench(5000, {});
  for (int32_t slot : {1, 2, 3, 4}) {
    SamplingParams p = drawn(uint64_t(slot));
    if (slot == 3) p.top_p = 0.9f;
    if (slot == 4) p.top_k = 5;
    p.top_logprobs = 2;
    bench.admit(slot, p);
  }
  std::mt19937 random(3);
  const auto good = random_row(random, 5000);
  const std::vector<float> bad(5000, std::numeric_limits<float>::quiet_NaN());
  auto mixed = good;
  mixed[44] = std::numeric_limits<float>::quiet_NaN();
  for (int32_t slot : {2, 3, 4}) {
    const auto r = bench.run({{1, -1}, {slot, -1}, {slot, 3}}, {good, slot % 2 ? bad : mixed, bad});
    EXPECT_TRUE(std::isfinite(r[0].logprob));
    EXPECT_GE(r[1].token, 0);
    EXPECT_LT(r[1].token, 5000);
  }
}

// --- cost ---

TEST(Sampler, Cost) {
  if (!kOptimised) GTEST_SKIP() << "says nothing about an optimised build";
  std::mt19937 random(6);
  for (int32_t vocab : {49'152, 262'144}) {
    constexpr int32_t kRows = 16;
    Bench bench(vocab, {}, 1);
    Logits logits;
    std::vector<LogitRow> rows;
    for (int32_t i = 0; i < kRows; ++i) {
      logits.push_back(random_row(random, vocab, 2));
      for (int k = 0; k < 500; ++k)  // a peak on top of the noise, as models give
        logits.back()[random() % uint32_t(vocab)] += 14 - 2.2f * std::log(float(1 + random() % 500));
      rows.push_back({1 + i, -1});
    }
    const auto measure = [&](const char* what, const SamplingParams& p) {
      for (int32_t i = 0; i < kRows; ++i) bench.admit(1 + i, p);
      double best = 1e9;
      for (int round = 0; round < 5; ++round) best = std::min(best, bench.timed(rows, logits) / kRows);
      std::printf("vocabulary of %6d: %-40s %7.1f us of CPU per row\n", vocab, what, best * 1e6);
      return best;
    };
    SamplingParams p = greedy();
    // 32 rows of the larger vocabulary on two cores in less than 3 ms: a fifth of what its output head takes.
    EXPECT_LT(measure("greedy", p), 180e-6);
    p.top_logprobs = 5;
    measure("greedy, 5 top logprobs", p);
    p = drawn(1);
    measure("temperature 1", p);
    p.temperature = 0.7f;
    p.top_k = 64;
    measure("temperature 0.7, top_k 64", p);
    p.top_p = 0.95f;
    measure("temperature 0.7, top_k 64, top_p 0.95", p);
    p.top_k = 0;
    measure("temperature 0.7, top_p 0.95", p);
    p.temperature = 2;
    measure("temperature 2, top_p 0.95 (flat)", p);
  }
}

}  // namespace
}  // namespace gapless
