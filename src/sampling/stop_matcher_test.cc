#include "sampling/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace gapless {
namespace {

// The definition, as directly as it can be written.
struct Naive {
  std::optional<size_t> found;
  int64_t visible = 0, text = 0;
};
Naive naive_search(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i)
      if (end >= stops[i].size() && text.compare(end - stops[i].size(), stops[i].size(), stops[i]) == 0 &&
          (!best || stops[i].size() > stops[*best].size()))
        best = i;
    if (best) return {best, int64_t(end - stops[*best].size()), int64_t(end)};
  }
  size_t held = 0;
  for (const std::string& stop : stops)
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n)
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) held = std::max(held, n);
  return {std::nullopt, int64_t(text.size() - held), int64_t(text.size())};
}

TEST(StopMatcher, EqualsTheNaiveSearchAfterEveryToken) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto word = [&](size_t most, uint32_t letters) {
    std::string s(1 + random() % most, 'a');
    for (char& c : s) c = char('a' + random() % letters);
    return s;
  };
  int matches = 0;
  for (int round = 0; round < 5000; ++round) {
    const uint32_t letters = 1 + random() % 3;  // few letters: many overlaps
    std::vector<std::string> stops(random() % 5);
    for (auto& stop : stops) stop = word(7, letters);
    StopMatcher matcher(stops);
    std::string text;
    int64_t shown = 0;
    for (int token = 0; token < 12; ++token) {
      const std::string bytes = random() % 8 == 0 ? "" : word(5, letters + 1);
      text += bytes;
      const auto found = matcher.feed(bytes);
      const Naive want = naive_search(stops, text);
      ASSERT_EQ(found, want.found) << text;
      ASSERT_EQ(matcher.visible_bytes(), want.visible) << text;
      ASSERT_EQ(matcher.text_bytes(), want.text) << text;
      ASSERT_GE(matcher.visible_bytes(), shown)
          << "text that was shown would have to be taken back: " << text;
      shown = matcher.visible_bytes();
      if (found) {
        ++matches;
        break;
      }
    }
  }
  EXPECT_GT(matches, 500);
}

TEST(StopMatcher, AcrossTokens_A_ST_1) {
  StopMatcher m({"O P Q"});
  for (const char* token : {"M", " N", " O", " P"}) ASSERT_FALSE(m.feed(token));
  EXPECT_EQ(m.visible_bytes(), 4);  // "M N " is shown, "O P" is held
  EXPECT_EQ(m.feed(" Q R S"), 0u);
  EXPECT_EQ(m.visible_bytes(), 4);
  EXPECT_EQ(m.text_bytes(), 9);
}

TEST(StopMatcher, APartialMatchThatFailsIsReleasedOnce_A_ST_2) {
  StopMatcher m({"\n", "Alice:"});
  ASSERT_FALSE(m.feed(" Ali"));
  EXPECT_EQ(m.visible_bytes(), 1);
  ASSERT_FALSE(m.feed("b"));
  EXPECT_EQ(m.visible_bytes(), 5);
  ASSERT_FALSE(m.feed("AlAlice"));
  EXPECT_EQ(m.visible_bytes(), 7);
  EXPECT_EQ(m.feed(":"), 1u);
  EXPECT_EQ(m.visible_bytes(), 7);
}

TEST(StopMatcher, HeldTextCanBeFlushedAtTheEnd_A_ST_3) {
  StopMatcher m({"TRE\nAAAAAAAA"});
  for (const char* token : {"UNO", " DUE", " TRE", "\n"}) ASSERT_FALSE(m.feed(token));
  EXPECT_EQ(m.visible_bytes(), 8);
  EXPECT_EQ(m.text_bytes(), 12);  // what an answer that ends here by EOS or length shows
}

TEST(StopMatcher, ATokenWithTextAndStop_A_ST_4) {
  StopMatcher m({"\n"});
  EXPECT_EQ(m.feed("?\n"), 0u);
  EXPECT_EQ(m.visible_bytes(), 1);
}

TEST(StopMatcher, AMatchThatStartsInsideAFailedOne) {
  StopMatcher m({"aab"});
  EXPECT_EQ(m.feed("aaab"), 0u);
  EXPECT_EQ(m.visible_bytes(), 1);
}

TEST(StopMatcher, HoldsBackBytesNotCharacters) {
  StopMatcher m({"\xe4\xbd\xa0!"});  // a three-byte character and "!"
  ASSERT_FALSE(m.feed("x\xe4\xbd"));
  EXPECT_EQ(m.visible_bytes(), 1);
  ASSERT_FALSE(m.feed("\xa0"));
  EXPECT_EQ(m.visible_bytes(), 1);
  ASSERT_FALSE(m.feed("\xe4\xbd\xa0"));
  EXPECT_EQ(m.visible_bytes(), 4);
  EXPECT_EQ(m.feed("!"), 0u);
  EXPECT_EQ(m.visible_bytes(), 4);
}

TEST(StopMatcher, WithoutStopsEverythingIsShown) {
  StopMatcher m;
  ASSERT_FALSE(m.feed("abc"));
  ASSERT_FALSE(m.feed(""));
  EXPECT_EQ(m.visible_bytes(), 3);
}

}  // namespace
}  // namespace gapless
