#include "kernels/op_work.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

// The expected numbers are worked out by hand, from the formats' sizes and not from the code.
class OpWorkTest : public ::testing::Test {
 protected:
  Rows rows(int32_t n) {
    count = n;
    return {&count, 0, 1024};
  }
  static PackedMatrix matrix(DType type, int32_t n, int32_t k) {
    return {packed_layout_for(type), n, k, nullptr};
  }
  MatmulParams matmul(int32_t m, PackedMatrix w) {
    return {.rows = rows(m),
            .x_f32 = nullptr,
            .ldx = 0,
            .x_q8 = nullptr,
            .w = w,
            .y = nullptr,
            .ldy = 0,
            .add = false};
  }
  AttentionParams attention(int32_t window) {
    AttentionParams p{};
    p.tiles = &tile;
    p.n_tiles = &n_tiles;
    p.n_heads = 9;
    p.window = window;
    p.kv.n_kv_heads = 3;
    p.kv.head_dim = 64;
    p.out.q8 = &block;
    p.out.dim = 576;
    return p;
  }

  int32_t count = 0, n_tiles = 1;
  AttentionTile tile{};
  Q8Block block;
};

TEST_F(OpWorkTest, MatmulReadsItsWeightsOnceAndMultipliesPerRow) {
  const PackedMatrix w = matrix(DType::kQ4_1, 3072, 576);  // 192 groups x 18 blocks x 320 bytes
  const OpWork one = matmul_work(matmul(1, w));
  EXPECT_EQ(one.bytes, 1105920 + 576 * 1.5 + 3072 * 4);
  EXPECT_EQ(one.int8_ops, 2.0 * 3072 * 576);
  EXPECT_EQ(one.flops, 0);
  const OpWork eight = matmul_work(matmul(8, w));
  EXPECT_EQ(eight.bytes, 1105920 + 8 * (576 * 1.5 + 3072 * 4));
  EXPECT_EQ(eight.int8_ops, 8 * one.int8_ops);
}

TEST_F(OpWorkTest, AddingReadsTheOutputsToo) {
  MatmulParams p = matmul(2, matrix(DType::kQ4_1, 576, 576));
  const double without = matmul_work(p).bytes;
  p.add = true;
  EXPECT_EQ(matmul_work(p).bytes - without, 2 * 576 * 4);
}

TEST_F(OpWorkTest, TheLowPlaneCostsProductsFromItsFirstOutputOn) {
  MatmulParams p = matmul(2, matrix(DType::kQ4_1, 960, 576));
  const OpWork without = matmul_work(p);
  p.x_q8_low = &block;
  p.low_begin = 768;
  const OpWork with = matmul_work(p);
  EXPECT_EQ(with.int8_ops - without.int8_ops, 2.0 * 2 * 576 * 192);
  EXPECT_EQ(with.bytes - without.bytes, 2 * 576 * 1.5);  // the weights are read once for both
}

TEST_F(OpWorkTest, FloatWeightsCountFloatOperations) {
  const OpWork work = matmul_work(matmul(3, matrix(DType::kF32, 64, 32)));
  EXPECT_EQ(work.int8_ops, 0);
  EXPECT_EQ(work.flops, 2.0 * 3 * 64 * 32);
  EXPECT_EQ(work.bytes, 64 * 32 * 4 + 3 * (32 * 4 + 64 * 4));
}

TEST_F(OpWorkTest, RowsAreThoseOfTheMomentItRuns) {
  const MatmulParams p = matmul(4, matrix(DType::kQ4_1, 576, 576));
  const double four = matmul_work(p).int8_ops;
  count = 1;  // `take` dropped three
  EXPECT_EQ(matmul_work(p).int8_ops, four / 4);
  count = 0;
  EXPECT_EQ(matmul_work(p).bytes, 0);
  EXPECT_EQ(matmul_work(p).int8_ops, 0);
}

TEST_F(OpWorkTest, AttentionReadsTheContextOncePerTile) {
  tile = {.slot = 0, .row_begin = 0, .rows = 1, .pos_begin = 99};
  const OpWork all = attention_work(attention(0));
  EXPECT_EQ(all.flops, 4 * 64 * 9 * 100);
  EXPECT_EQ(all.bytes, 4 * 64 * 3 * 100 + 4 * 64 * 9 + 576 * 1.5);
  const OpWork windowed = attention_work(attention(50));
  EXPECT_EQ(windowed.flops, 4 * 64 * 9 * 50);
  EXPECT_EQ(windowed.bytes, 4 * 64 * 3 * 50 + 4 * 64 * 9 + 576 * 1.5);
  tile = {.slot = 0, .row_begin = 0, .rows = 8, .pos_begin = 0};
  const OpWork prompt = attention_work(attention(0));
  EXPECT_EQ(prompt.flops, 4 * 64 * 9 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
  EXPECT_EQ(prompt.bytes, 4 * 64 * 3 * 8 + 8 * (4 * 64 * 9 + 576 * 1.5));
}

TEST_F(OpWorkTest, Int8KvHasAScaleForEachRow) {
  tile = {.slot = 0, .row_begin = 0, .rows = 1, .pos_begin = 99};
  AttentionParams p = attention(0);
  p.kv.dtype = KvDtype::kI8;
  EXPECT_EQ(attention_work(p).bytes, 2 * (64 + 4) * 3 * 100 + 4 * 64 * 9 + 576 * 1.5);
}

TEST_F(OpWorkTest, ElementwiseOpsReadAndWriteTheirRows) {
  GatedActivationParams gated{};
  gated.rows = rows(5);
  gated.out.q8 = &block;
  gated.out.dim = 1536;
  EXPECT_EQ(gated_activation_work(gated).bytes, 5 * 1536 * (4 + 4 + 1.5));
  RmsNormParams norm{};
  norm.rows = rows(5);
  norm.out = gated.out;
  EXPECT_EQ(rms_norm_work(norm).bytes, 5 * 1536 * (4 + 1.5));
  float residual = 0;
  norm.residual = &residual;  // read and written; `out` is not
  EXPECT_EQ(rms_norm_work(norm).bytes, 5 * 1536 * (4 + 8));
}

}  // namespace
}  // namespace gapless
