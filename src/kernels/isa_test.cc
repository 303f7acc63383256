#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gapless {
namespace {

TEST(Isa, ReferenceIsAlwaysThereAndAutoIsTheBest) {
  ASSERT_NE(op_table(Isa::kReference), nullptr);
  EXPECT_STREQ(op_table(Isa::kReference)->name, "reference");
  EXPECT_EQ(*parse_isa("auto"), best_isa());
  EXPECT_EQ(*parse_isa("reference"), Isa::kReference);
  EXPECT_NE(op_table(best_isa()), nullptr);
}

TEST(Isa, TablesAreCompleteAndNamed) {
  for (Isa isa : kIsas) {
    const OpTable* t = op_table(isa);
    if (!t) {
      const auto refused = parse_isa(isa_name(isa));
      ASSERT_FALSE(refused.is_ok());
      EXPECT_NE(refused.status().message().find(cpu_features()), std::string::npos);
      continue;
    }
    EXPECT_STREQ(t->name, isa_name(isa));
    EXPECT_EQ(*parse_isa(isa_name(isa)), isa);
    EXPECT_TRUE(t->embed && t->rms_norm && t->matmul && t->rope_table && t->rope_kv && t->attention &&
                t->gated_activation);
  }
}

// On a CPU that the caller knows (an emulated one): without this, tests of a table that is never chosen pass.
TEST(Isa, TheBestIsWhatTheCallerKnows) {
  const char* expected = std::getenv("GAPLESS_EXPECT_ISA");
  if (!expected) GTEST_SKIP() << "GAPLESS_EXPECT_ISA is not set";
  EXPECT_STREQ(isa_name(best_isa()), expected) << cpu_features();
}

TEST(Isa, UnknownNamesSayWhatThereIs) {
  const auto result = parse_isa("sse9");
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  for (const char* word : {"sse9", "auto", "reference", "--isa"})
    EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
}

}  // namespace
}  // namespace gapless
