#include "engine/sizing.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr int64_t kGiB = int64_t(1) << 30;

ModelConfig model() {
  ModelConfig c;
  c.n_layers = 30, c.n_kv_heads = 3, c.head_dim = 64, c.vocab_size = 49152, c.context_length = 8192;
  return c;
}

TEST(Sizing, AQuarterOfMemoryBecomesTheKvPool) {
  const Sizing s = resolve_sizing({}, model(), {2}, 8 * kGiB).value();
  EXPECT_EQ(model().kv_bytes_per_token(KvDtype::kF16), 30 * 2 * 3 * 64 * 2);
  EXPECT_EQ(s.scheduler.max_total_tokens, 2 * kGiB / 23040 / 16 * 16);
  EXPECT_EQ(s.scheduler.context_length, 8192);
  EXPECT_EQ(s.runner.total_pages, s.scheduler.max_total_tokens / 16);
  EXPECT_EQ(s.runner.limits.max_rows, 512 + 64);
  EXPECT_TRUE(s.notes.empty());
}

// 8 bits and a scale of 4 bytes for each token, layer and head, of K and of V.
TEST(Sizing, Int8HoldsMoreTokensInTheSameMemory) {
  EngineOptions o;
  o.kv_dtype = KvDtype::kI8;
  const Sizing s = resolve_sizing(o, model(), {2}, 8 * kGiB).value();
  EXPECT_EQ(s.scheduler.max_total_tokens, 2 * kGiB / (30 * 2 * 3 * 68) / 16 * 16);
  EXPECT_EQ(s.kv_bytes, s.scheduler.max_total_tokens * 12240);
  EXPECT_EQ(s.runner.kv_dtype, KvDtype::kI8);
}

TEST(Sizing, NoMoreThanCanBeUsed) {
  const Sizing s = resolve_sizing({}, model(), {2}, 1024 * kGiB).value();
  EXPECT_EQ(s.scheduler.max_total_tokens, 2 * 64 * 8192);
}

TEST(Sizing, WholePromptsNeedRowsForTheContext) {
  EngineOptions o;
  o.scheduler.chunked_prefill_size = -1;
  EXPECT_EQ(resolve_sizing(o, model(), {2}, 8 * kGiB)->runner.limits.max_rows, 16384 + 64);
}

// --chunk 4096 --max-prefill 2048 crashed another engine on the first long prompt.
TEST(KnownFailures, A_MC_2_InconsistentFlagsAreClippedWithASentence) {
  EngineOptions o;
  o.scheduler.chunked_prefill_size = 4096;
  o.scheduler.max_prefill_tokens = 2048;
  const Sizing s = resolve_sizing(o, model(), {2}, 8 * kGiB).value();
  EXPECT_EQ(s.scheduler.chunked_prefill_size, 2048);
  ASSERT_EQ(s.notes.size(), 1u);
  EXPECT_NE(s.notes[0].find("--chunked-prefill-size"), std::string::npos);
}

TEST(Sizing, ErrorsNameFlagAndNumbers) {
  EngineOptions o;
  o.kv_mem_bytes = 1000;
  EXPECT_NE(resolve_sizing(o, model(), {2}, kGiB).status().message().find("--kv-mem"), std::string::npos);
  o.kv_mem_bytes = 2 * kGiB;
  const Status too_much = resolve_sizing(o, model(), {2}, kGiB).status();
  EXPECT_NE(too_much.message().find("1024 MiB"), std::string::npos) << too_much.message();
  o = {};
  o.context_length = 10000;
  EXPECT_NE(resolve_sizing(o, model(), {2}, kGiB).status().message().find("8192"), std::string::npos);
}

}  // namespace
}  // namespace gapless
