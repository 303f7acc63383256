#include "apps/roof_share.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

ModelSummary small_model(bool tied) {
  ModelSummary m{};
  m.config.vocab_size = 1000;
  m.config.dim = 100;  // a table of 100,000
  m.config.n_params = tied ? 1'100'000 : 1'200'000;
  m.config.n_layers = 2;
  m.config.n_kv_heads = 1;
  m.config.head_dim = 50;  // 400 bytes of KV per token
  m.weight_bytes = 1'200'000;
  m.tied_embeddings = tied;
  m.types = {{"Q8_0", 1, 1, 1}};
  return m;
}

TEST(RoofShare, PrefillIsArithmetic) {
  const RoofShare share(small_model(true), KvDtype::kF16, {.int8_gops = 2, .f32_gflops = 1, .read_gbps = 1});
  EXPECT_DOUBLE_EQ(share.prefill(1000), 1.0);  // 2 million operations per token, 2 billion a second
  EXPECT_DOUBLE_EQ(share.prefill(250), 0.25);
}

TEST(RoofShare, DecodeIsBoundByWhatTakesLonger) {
  const Roof roof{.int8_gops = 2.2, .f32_gflops = 1, .read_gbps = 1.2};
  const RoofShare share(small_model(true), KvDtype::kF16, roof);
  // One row: 1.2 MB at 1.2 GB/s = 1 ms, arithmetic 2.2 million operations = 1 ms; with 3,000 tokens of cache
  // reading is twice as long.
  EXPECT_NEAR(share.decode(1000, 1, 0), 1.0, 1e-9);
  EXPECT_NEAR(share.decode(500, 1, 3000), 1.0, 1e-9);
  // Four rows: arithmetic takes 4 ms for 4 tokens.
  EXPECT_NEAR(share.decode(1000, 4, 0), 1.0, 1e-9);
}

TEST(RoofShare, ATableThatIsOnlyLookedUpIsNotRead) {
  const Roof roof{.int8_gops = 1e6, .f32_gflops = 1, .read_gbps = 1.1};
  EXPECT_NEAR(RoofShare(small_model(false), KvDtype::kF16, roof).decode(1000, 1, 0), 1.0,
              1e-9);  // 1.1 of the 1.2 MB
}

TEST(RoofShare, FloatWeightsAreComparedWithFloatArithmetic) {
  ModelSummary model = small_model(true);
  model.types = {{"BF16", 1, 1, 1}};
  EXPECT_DOUBLE_EQ(
      RoofShare(model, KvDtype::kF16, {.int8_gops = 8, .f32_gflops = 2, .read_gbps = 1}).prefill(1000), 1.0);
}

}  // namespace
}  // namespace gapless
