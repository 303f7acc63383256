// Offsets of tokens against the text that a client gets.
#include "server/text_offsets.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gapless {
namespace {

std::vector<int64_t> offsets_of(const std::vector<std::string>& tokens) {
  TextOffsets offsets;
  std::vector<int64_t> out;
  for (const std::string& token : tokens) {
    out.push_back(offsets.next());
    offsets.add(token);
  }
  out.push_back(offsets.next());
  return out;
}

TEST(TextOffsets, ACharacterBelongsToTheTokenThatBeginsIt) {
  EXPECT_EQ(offsets_of({"h", "\xC3", "\xA9", "", "x"}), (std::vector<int64_t>{0, 1, 2, 2, 2, 3}));
}

TEST(TextOffsets, BytesThatAreNotUtf8CountAsTheirReplacementCharacter) {
  EXPECT_EQ(offsets_of({"\x80", "a", "\xE6\xBC", "b", "\xF0\x9F", "\x98"}),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 5}));
  EXPECT_EQ(offsets_of({"\xE0", "\x80", "\xED\xA0"}), (std::vector<int64_t>{0, 1, 2, 4}))
      << "what cannot go on with a character begins another";
}

TEST(TextOffsets, AnyTokensPartitionTheText) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr unsigned char kBytes[] = {'a',  0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0,
                                      0xE6, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0x0A, 0x90};
  for (int round = 0; round < 5000; round++) {
    std::vector<std::string> tokens(random() % 12);
    std::string all;
    for (std::string& token : tokens) {
      for (uint32_t n = random() % 4; n > 0; n--) token += static_cast<char>(kBytes[random() % 16]);
      all += token;
    }
    std::string text;
    Utf8Stream stream;
    stream.feed(all, text);
    stream.finish(text);
    const std::vector<int64_t> offsets = offsets_of(tokens);
    EXPECT_EQ(offsets.back(), count_characters(text)) << "the whole text, no more";
    for (size_t i = 0; i < tokens.size(); i++) {
      ASSERT_LE(offsets[i], offsets[i + 1]);
      ASSERT_LE(offsets[i + 1] - offsets[i], int64_t(tokens[i].size())) << "no wider than its bytes";
    }
  }
}

}  // namespace
}  // namespace gapless
