#include "server/best_of.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

Choice choice(int32_t index, double logprob_sum, int64_t n_tokens,
              FinishReason reason = FinishReason::kStop) {
  Choice c;
  c.index = index;
  c.text = fmt::format("answer {}", index);
  c.logprob_sum = logprob_sum;
  c.n_tokens = n_tokens;
  c.finish = Finish{reason, {}, {}};
  return c;
}

template <class... Choices>
std::vector<Choice> all(Choices... choices) {
  std::vector<Choice> list;
  (list.push_back(std::move(choices)), ...);
  return list;
}

TEST(BestOf, TheMeanCountsOfEachPromptByItself) {
  const std::vector<Choice> kept = likeliest(all(choice(0, -4, 2), choice(1, -6, 6), choice(2, -3, 2),  //
                                                 choice(3, -1, 1), choice(4, -1, 1), choice(5, -9, 1)),
                                             3, 2);
  ASSERT_EQ(kept.size(), 4u);
  const int32_t want[] = {1, 2, 3, 4};  // of equal ones the first
  for (int32_t i = 0; i < 4; i++) {
    EXPECT_EQ(kept[i].index, i);
    EXPECT_EQ(kept[i].text, fmt::format("answer {}", want[i]));
  }
}

TEST(BestOf, FailedAnswersComeLast) {
  const std::vector<Choice> kept =
      likeliest(all(choice(0, 0, 0, FinishReason::kError), choice(1, -100, 1)), 2, 1);
  EXPECT_EQ(kept[0].text, "answer 1");
}

TEST(BestOf, AllStayAsTheyAreWhereAllAreReturned) {
  const std::vector<Choice> kept = likeliest(all(choice(0, -4, 2), choice(1, -1, 2)), 2, 2);
  EXPECT_EQ(kept[0].text, "answer 0");
  EXPECT_EQ(kept[1].text, "answer 1");
}

}  // namespace
}  // namespace gapless
