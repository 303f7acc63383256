#include "engine/profile_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/model_worker_batch.h"

namespace gapless {
namespace {

constexpr Roof kRoof{.int8_gops = 1000, .f32_gflops = 100, .read_gbps = 50};

TEST(ProfileReport, ShareIsOfTheNarrowestBound) {
  const auto use = [](OpWork work) {
    return roof_use({.label = "x", .calls = 2, .seconds = 1, .work = work}, kRoof);
  };
  EXPECT_DOUBLE_EQ(use({.bytes = 25e9, .flops = 0, .int8_ops = 100e9}).share, 0.5);
  EXPECT_STREQ(use({.bytes = 25e9, .flops = 0, .int8_ops = 100e9}).bound, "memory");
  EXPECT_DOUBLE_EQ(use({.bytes = 5e9, .flops = 0, .int8_ops = 700e9}).share, 0.7);
  EXPECT_STREQ(use({.bytes = 5e9, .flops = 0, .int8_ops = 700e9}).bound, "int8");
  EXPECT_STREQ(use({.bytes = 5e9, .flops = 90e9, .int8_ops = 0}).bound, "float");
  EXPECT_EQ(use({}).share, 0);
}

std::vector<StepTotals> totals(size_t n_ops) {
  StepTotals steps{
      .kind = int32_t(ForwardMode::kDecode), .steps = 10, .rows = 80, .seconds = 0, .gaps = 1e-3, .ops = {}};
  for (size_t i = 0; i < n_ops; i++) {
    steps.ops.push_back({.label = "op" + std::to_string(i),
                         .calls = 20,
                         .seconds = 1e-3 * double(i + 1),
                         .work = {1e6, 0, 0}});
    steps.seconds += steps.ops.back().seconds;
  }
  return {steps};
}

TEST(ProfileReport, TextHasTheLargestOpsFirstAndTheRestTogether) {
  const std::string text = profile_text(totals(5), kRoof, 3);
  EXPECT_NE(text.find("decode steps: 10 of 1500.0 us with 8.0 tokens, 100.0 us between them"),
            std::string::npos)
      << text;
  const size_t first = text.find("op4"), second = text.find("op3"), rest = text.find("2 other ops");
  EXPECT_TRUE(first < second && second < rest && rest != std::string::npos) << text;
  EXPECT_EQ(text.find("op1"), std::string::npos) << text;
  EXPECT_NE(text.find("33.3 %"), std::string::npos) << text;  // op4: 5 of 15 ms
  EXPECT_NE(profile_text({}, kRoof).find("no step so far"), std::string::npos);
  // Numbers stand below their headings, also where one has none: each cell ends where its heading does.
  const size_t heading = text.find("GB/s", text.find("MB/call"));
  const size_t line = text.find("op4"), number = text.find("0.2", text.find("33.3 %"));
  EXPECT_EQ(heading + 4 - text.rfind('\n', heading), number + 3 - text.rfind('\n', line)) << text;
}

TEST(ProfileReport, JsonHasEverything) {
  const auto json = nlohmann::json::parse(profile_json(totals(20), kRoof));
  EXPECT_EQ(json.at("roof").at("int8_gops"), 1000);
  const auto& steps = json.at("steps").at(0);
  EXPECT_EQ(steps.at("kind"), "decode");
  EXPECT_EQ(steps.at("tokens"), 80);
  ASSERT_EQ(steps.at("ops").size(), 20u);
  EXPECT_EQ(steps.at("ops").at(0).at("op"), "op19");
  EXPECT_EQ(steps.at("ops").at(0).at("bound"), "memory");
}

}  // namespace
}  // namespace gapless
