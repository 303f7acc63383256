// Embeddings of tiny random models: what they are, next to a decoder written a second time, and that they are
// the same bits however the prompt was cut. In a crowd, with overlap and after retractions: equality_test.cc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <filesystem>

#include "engine/engine.h"
#include "engine/testing/collect.h"
#include "model/testing/naive_decoder.h"
#include "model/testing/tiny_model.h"

namespace gapless {
namespace {

using testing::Bytes;
using testing::Outcome;
using testing::TinyModelOptions;

class EmbeddingTest : public ::testing::TestWithParam<Bytes (*)(const TinyModelOptions&)> {
 protected:
  void SetUp() override {
    file_ = GetParam()({.dtype = DType::kF32});
    options_.model_path = ::testing::TempDir() + fmt::format("embedding-test-{}.gguf", getpid());
    ASSERT_TRUE(testing::write_file(options_.model_path, file_).is_ok());
    options_.threads = 2;
    options_.scheduler.max_total_tokens = 4096;
  }
  void TearDown() override { std::filesystem::remove(options_.model_path); }

  static std::vector<int32_t> ids(int32_t n) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; i++) ids.push_back(20 + i * 37 % 400);
    return ids;
  }
  static GenerateRequest request(std::vector<int32_t> ids, Pooling pooling) {
    GenerateRequest r;
    r.prompt = std::move(ids);
    r.max_tokens = 0;
    r.embedding = pooling;
    return r;
  }
  Outcome run(const EngineOptions& options, const GenerateRequest& r) const {
    return testing::run_alone(*Engine::create(options).value(), {r})[0];
  }
  // Mean of the hidden states from `begin` on, in double precision.
  std::vector<double> naive(std::span<const int32_t> ids, size_t begin) const {
    const auto hidden = testing::naive_hidden(GgufFile::parse("tiny.gguf", file_).value(), ids);
    std::vector<double> mean(hidden[0].size());
    for (size_t i = begin; i < hidden.size(); i++)
      for (size_t d = 0; d < mean.size(); d++) mean[d] += hidden[i][d] / double(hidden.size() - begin);
    return mean;
  }

  Bytes file_;
  EngineOptions options_;
};

TEST_P(EmbeddingTest, IsTheLastHiddenStateOrTheMeanOfAll) {
  const std::vector<int32_t> prompt = ids(45);
  options_.scheduler.chunked_prefill_size = 16;
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const Outcome got = run(options_, request(prompt, pooling));
    ASSERT_TRUE(got.status.is_ok()) << got.status.message();
    const std::vector<double> want = naive(prompt, pooling == Pooling::kLast ? prompt.size() - 1 : 0);
    const std::vector<uint32_t>& bits = got.answers[0].embedding_bits;
    ASSERT_EQ(bits.size(), want.size());
    double difference = 0, length = 0;
    for (size_t d = 0; d < want.size(); d++) {
      const double delta = std::bit_cast<float>(bits[d]) - want[d];
      difference += delta * delta;
      length += want[d] * want[d];
    }
    EXPECT_LT(difference, 1e-6 * length) << int(pooling);
    EXPECT_TRUE(got.answers[0].ids.empty());
    EXPECT_EQ(got.answers[0].finish, "length");
    EXPECT_EQ(got.usage.prompt_tokens, 45);
    EXPECT_EQ(got.usage.completion_tokens, 0);
  }
}

TEST_P(EmbeddingTest, SameBitsInChunksOfAnySizeColdOrCached) {
  const std::vector<int32_t> prompt = ids(70);
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const std::vector<uint32_t> want = run(options_, request(prompt, pooling)).answers[0].embedding_bits;
    ASSERT_FALSE(want.empty());
    for (const int32_t chunk : {1, 16, 33}) {
      EngineOptions options = options_;
      options.scheduler.chunked_prefill_size = chunk;
      const std::unique_ptr<Engine> engine = Engine::create(options).value();
      for (const bool cached : {false, true}) {
        const Outcome got = testing::run_alone(*engine, {request(prompt, pooling)})[0];
        EXPECT_EQ(got.answers[0].embedding_bits, want) << int(pooling) << " chunk " << chunk << cached;
        // The mean needs the hidden states of all positions, and the cache has only their KV.
        EXPECT_EQ(got.usage.cached_tokens > 0, cached && pooling == Pooling::kLast);
      }
    }
  }
}

// Nobody sees what a former owner of the slot, or a request that was aborted in the middle, has left.
TEST_P(EmbeddingTest, BeginsAnewInAUsedSlot) {
  options_.scheduler.max_running_requests = 1;
  const std::unique_ptr<Engine> engine = Engine::create(options_).value();
  const GenerateRequest r = request(ids(30), Pooling::kMean);
  const Outcome first = testing::run_alone(*engine, {r})[0];
  for (int32_t i = 0; i < 5; i++) testing::run_alone(*engine, {request(ids(31 + i), Pooling::kMean)});
  EXPECT_EQ(testing::run_alone(*engine, {r})[0].answers[0].embedding_bits, first.answers[0].embedding_bits);
}

INSTANTIATE_TEST_SUITE_P(Models, EmbeddingTest, ::testing::Values(testing::tiny_llama, testing::tiny_gemma3),
                         [](const auto& info) { return info.index == 0 ? "llama" : "gemma3"; });

}  // namespace
}  // namespace gapless
