#include "kernels/roof.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

// Bounds that any CPU of the last ten years and of the next ten meets.
TEST(Roof, NumbersArePlausible) {
  const Roof roof = measure_roof(1);
  EXPECT_GT(roof.int8_gops, 0.05);
  EXPECT_LT(roof.int8_gops, 1e5);
  EXPECT_GT(roof.f32_gflops, 0.05);
  EXPECT_LT(roof.f32_gflops, 2e4);
  EXPECT_GT(roof.read_gbps, 0.05);
  EXPECT_LT(roof.read_gbps, 2e3);
  std::printf("one thread: int8 %.0f GOP/s, f32 %.0f GFLOP/s, read %.1f GB/s\n", roof.int8_gops,
              roof.f32_gflops, roof.read_gbps);
}

}  // namespace
}  // namespace gapless
