// The real models against float32 numbers computed elsewhere (tests/data). Needs GAPLESS_SMOLLM2 and
// GAPLESS_GEMMA3: paths of SmolLM2-135M-Instruct Q4_1 and Gemma 3 270M Q4_K_M.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "device/registry.h"
#include "kernels/isa.h"
#include "model/gguf.h"
#include "model/registry.h"
#include "model/testing/gguf_mutations.h"
#include "model/testing/model_harness.h"

namespace gapless {
namespace {

using testing::HarnessOptions;
using testing::ModelHarness;

struct RealModel {
  const char* variable;
  const char* reference;
};

double log_probability(std::span<const float> logits, int32_t id) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - most);
  return double(logits[size_t(id)]) - most - std::log(sum);
}

class RealModels : public ::testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    const char* path = std::getenv(GetParam().variable);
    ASSERT_NE(path, nullptr) << "set " << GetParam().variable << " to the model's path";
    path_ = path;
  }
  std::unique_ptr<ModelHarness> load(const HarnessOptions& options) {
    const GgufFile file = GgufFile::open(path_).value();
    return ModelHarness::create(file, options).value();
  }
  static nlohmann::json reference() {
    std::ifstream file(std::string(GAPLESS_TEST_DATA "/") + GetParam().reference);
    return nlohmann::json::parse(file);
  }
  std::string path_;
};

INSTANTIATE_TEST_SUITE_P(Files, RealModels,
                         ::testing::Values(RealModel{"GAPLESS_SMOLLM2", "smollm2_reference.json"},
                                           RealModel{"GAPLESS_GEMMA3", "gemma3_reference.json"}),
                         [](const auto& info) { return info.index == 0 ? "smollm2" : "gemma3"; });

// Memory of mapped files that this process has in RAM.
double resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssFile:") continue;
    double kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

const OpTable* best_table() {
  return op_table(best_isa());
}

// Log probabilities of prompt tokens against the reference's.
struct Accuracy {
  int tokens = 0;
  double differences = 0, largest = 0, nll = 0, nll_reference = 0;  // sums, but for `largest`

  double mean_difference() const { return differences / std::max(1, tokens); }
  double nll_change() const { return nll / nll_reference - 1; }
  Accuracy& operator+=(const Accuracy& o) {
    tokens += o.tokens;
    differences += o.differences;
    largest = std::max(largest, o.largest);
    nll += o.nll;
    nll_reference += o.nll_reference;
    return *this;
  }
};

Accuracy accuracy_of(ModelHarness& harness, const nlohmann::json& reference_case) {
  const std::vector<int32_t> ids = reference_case.at("prompt_ids");
  Accuracy a;
  harness.for_each_logits(ids, 512, 0, [&](size_t row, std::span<const float> logits) {
    if (row + 1 == ids.size()) return;
    const double expected = reference_case.at("prompt_logprobs")[row + 1],
                 got = log_probability(logits, ids[row + 1]), difference = std::fabs(got - expected);
    a += {1, difference, difference, -got, -expected};
  });
  return a;
}

HarnessOptions whole_prompts(KvDtype dtype) {
  return {.table = best_table(),
          .max_rows = 512,
          .slots = 1,
          .max_tokens = 1024,
          .kv_dtype = dtype,
          .threads = 2};
}

// Mean |d log probability| of prompt tokens at most 0.05, mean negative log likelihood within 0.5 %, and
// every greedy answer begins with the tokens of which the reference is sure (margin of at least 0.25).
TEST_P(RealModels, agrees_with_float32) {
  const auto harness = load(whole_prompts(KvDtype::kF16));
  Accuracy all;
  int greedy_same = 0, greedy_sure = 0;
  const nlohmann::json numbers = reference();
  ASSERT_FALSE(numbers.at("cases").empty());
  for (const nlohmann::json& c : numbers.at("cases")) {
    const std::vector<int32_t> ids = c.at("prompt_ids");
    const Accuracy one = accuracy_of(*harness, c);
    all += one;
    std::vector<int32_t> sure = c.at("greedy_ids");
    sure.resize(c.at("greedy_sure_tokens"));
    const bool same = harness->greedy(ids, int32_t(sure.size())) == sure;
    EXPECT_TRUE(same) << c.at("name") << ": greedy answer differs where the reference is sure";
    greedy_sure += !sure.empty();
    greedy_same += same && !sure.empty();
    std::printf("%-24s %4zu tokens, mean |d| %.4f\n", c.at("name").get<std::string>().c_str(), ids.size(),
                one.mean_difference());
  }
  std::printf("%d tokens, mean |d| %.4f, largest %.3f, NLL %.3f %% off, greedy %d of %d\n", all.tokens,
              all.mean_difference(), all.largest, 100 * all.nll_change(), greedy_same, greedy_sure);
  EXPECT_LE(all.mean_difference(), 0.05);
  EXPECT_LE(std::fabs(all.nll_change()), 0.005);
}

// The table in docs/performance.md.
TEST_P(RealModels, every_type_of_kv_cache_stays_near_float32) {
  const nlohmann::json numbers = reference();
  for (const KvDtype dtype : kKvDtypes) {
    const auto harness = load(whole_prompts(dtype));
    Accuracy all;
    for (const nlohmann::json& c : numbers.at("cases")) all += accuracy_of(*harness, c);
    std::printf("%-5s %d tokens, mean |d| %.4f, largest %.3f, NLL %+.3f %%\n", kv_dtype_name(dtype),
                all.tokens, all.mean_difference(), all.largest, 100 * all.nll_change());
    EXPECT_LE(all.mean_difference(), dtype == KvDtype::kI8 ? 0.1 : 0.05) << kv_dtype_name(dtype);
    EXPECT_LE(std::fabs(all.nll_change()), 0.005) << kv_dtype_name(dtype);
  }
}

TEST_P(RealModels, chunks_pages_and_threads_do_not_change_a_bit) {
  std::vector<int32_t> ids = reference().at("cases").back().at("prompt_ids");
  ids.resize(96);
  HarnessOptions options{.table = best_table(), .max_rows = 96, .slots = 2, .max_tokens = 96, .threads = 2};
  const auto expected = load(options)->run(ids, 96);
  options.threads = 0;
  options.page_size = 1;
  const auto harness = load(options);
  EXPECT_EQ(harness->run(ids, 1, 0), expected);
  EXPECT_EQ(harness->run(ids, 13, 1), expected);
}

TEST_P(RealModels, loads_fast_and_gives_the_file_back) {
  const GgufFile file = GgufFile::open(path_).value();
  const auto device = make_device("cpu", {.threads = 1}).value();
  (void)load_model(file, *device).value();  // warms the page cache
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  const auto model = load_model(file, *device).value();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double cpu = cpu_seconds() - cpu_start, resident = resident_file_bytes();
  std::printf("%.0f MB in %.2f s, %.2f s of CPU; %.1f MB of files still mapped in\n",
              double(file.file_bytes()) / 1e6, seconds, cpu, resident / 1e6);
  // CPU time: wall-clock time on a busy machine says nothing.
  EXPECT_LT(cpu, 0.5 + double(file.file_bytes()) / 100e6);
  EXPECT_LT(resident, 60e6);
}

// The header of a real file: hundreds of thousands of strings.
TEST_P(RealModels, A_GG_1_mutated_headers) {
  constexpr int kMutations = 10000;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const MappedFile mapping = MappedFile::open(path_).value();
  const size_t header_bytes = GgufFile::parse("real", mapping.bytes())->data_offset();
  // Only the header exists in memory; the tensors' data is never touched, but a file of the right size must
  // be there.
  testing::Bytes bytes(mapping.bytes().size());
  std::copy_n(mapping.bytes().begin(), header_bytes, bytes.begin());
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    const auto changed = testing::overwrite_header(std::span(bytes).first(header_bytes), random);
    const testing::Cost cost;
    const Result<GgufFile> file = GgufFile::parse("mutated.gguf", bytes);
    refused += !file.is_ok();
    ASSERT_LT(cost.seconds(), 1.0) << "mutation " << i;
    ASSERT_LT(cost.allocated(), size_t(100) << 20) << "mutation " << i;
    std::copy(mapping.bytes().begin() + ptrdiff_t(changed.begin),
              mapping.bytes().begin() + ptrdiff_t(changed.end), bytes.begin() + ptrdiff_t(changed.begin));
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace gapless
