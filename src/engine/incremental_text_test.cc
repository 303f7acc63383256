#include "engine/incremental_text.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/testing/hand_vocab.h"

namespace gapless {
namespace {

using Ids = std::vector<int32_t>;

const std::string kReplacement = "\xEF\xBF\xBD";

// The definition, not a state machine. Is `bytes` one whole character?
bool is_character(std::string_view bytes) {
  const size_t n = bytes.size();
  const auto at = [&](size_t i) { return uint32_t(uint8_t(bytes[i])); };
  if (n == 0 || n > 4) return false;
  if (n == 1) return at(0) < 0x80;
  const uint32_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0}, masks[] = {0, 0, 0xE0, 0xF0, 0xF8};
  if ((at(0) & masks[n]) != marks[n]) return false;
  uint32_t code = at(0) & ~masks[n];
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xC0) != 0x80) return false;
    code = code << 6 | (at(i) & 0x3F);
  }
  const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= least[n] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

// Can `bytes` be completed? Tries continuation bytes from every range that any lead byte tells apart.
bool begins_character(const std::string& bytes) {
  if (is_character(bytes)) return true;
  if (bytes.empty() || bytes.size() >= 4) return false;
  for (int next : {0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF}) {
    if (begins_character(bytes + char(next))) return true;
  }
  return false;
}

// One U+FFFD for each maximal part of a character.
std::string repaired(const std::string& bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    size_t n = 1;
    while (at + n < bytes.size() && begins_character(bytes.substr(at, n + 1))) ++n;
    while (n > 1 && !begins_character(bytes.substr(at, n))) --n;
    const std::string part = bytes.substr(at, n);
    out += is_character(part) ? part : kReplacement;
    at += n;
  }
  return out;
}

std::string stream(const std::string& bytes, size_t cut) {
  Utf8Stream utf8;
  std::string out;
  utf8.feed(std::string_view(bytes).substr(0, cut), out);
  utf8.feed(std::string_view(bytes).substr(cut), out);
  utf8.finish(out);
  return out;
}

TEST(Utf8Stream, KnownVectors) {
  // Python: bytes.decode(errors="replace")
  const std::pair<std::string, std::string> cases[] = {
      {"\x41\xC0\xAF\x41\xF4\x80\x80\x41", "A" + kReplacement + kReplacement + "A" + kReplacement + "A"},
      {"\xE2\x82", kReplacement},
      {"\xF0\x9F\x98", kReplacement},
      {"\xED\xA0\x80", kReplacement + kReplacement + kReplacement},
      {"\xF0\x80\x80\x41", kReplacement + kReplacement + kReplacement + "A"},
      {"\xE2\x82\xAC", "€"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xF4\x90\x80\x80", kReplacement + kReplacement + kReplacement + kReplacement},
      {"\xE2\xE2\x82\xAC", kReplacement + "€"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(repaired(bytes), text) << "the test's own definition";
    for (size_t cut = 0; cut <= bytes.size(); ++cut) EXPECT_EQ(stream(bytes, cut), text);
  }
}

TEST(Utf8Stream, EqualsTheDefinitionOnRandomBytes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string favourites = "\x41\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xE0\xE2\xED\xEF\xF0\xF4\xF5";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (size_t n = random() % 12; bytes.size() < n;) {
      bytes.push_back(random() % 4 ? favourites[random() % favourites.size()] : char(random()));
    }
    ASSERT_EQ(stream(bytes, random() % (bytes.size() + 1)), repaired(bytes));
  }
}

class EachKind : public ::testing::TestWithParam<testing::HandVocab> {
 protected:
  testing::HandVocab vocab = GetParam();
  Tokenizer tokenizer = Tokenizer::create(vocab.data()).value();
};
INSTANTIATE_TEST_SUITE_P(Vocabularies, EachKind,
                         ::testing::Values(testing::byte_level_vocab(), testing::spm_vocab()),
                         [](const auto& vocab) { return vocab.param.model; });

TEST_P(EachKind, EqualsTheWholeTextOnRandomIds) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const TokenBytes& table = tokenizer.token_bytes();
  for (int round = 0; round < 3000; ++round) {
    const bool skip_special = round % 2 == 0;
    Ids ids(random() % 30);
    for (int32_t& id : ids) id = int32_t(random() % uint32_t(tokenizer.vocab_size()));
    IncrementalText decoder(table, {.skip_special = skip_special});
    std::string text, bytes;
    for (int32_t id : ids) {
      decoder.feed(id, text);
      ASSERT_EQ(repaired(text), text) << "half a character was let out";
      bytes += table.text_of(id, skip_special);
    }
    decoder.finish(text);
    ASSERT_EQ(text, repaired(bytes));
    std::string whole = repaired(bytes);
    if (tokenizer.add_space_prefix() && whole.starts_with(' ')) whole.erase(0, 1);
    ASSERT_EQ(tokenizer.decode(ids, skip_special), whole);
  }
}

TEST_P(EachKind, A_U8_2_CharacterOverSeveralTokens) {
  IncrementalText decoder(tokenizer.token_bytes(), {});
  std::string text;
  const std::string emoji = "😀";
  for (size_t i = 0; i < emoji.size(); ++i) {
    const std::string byte(1, emoji[i]);
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.token_bytes().of(id) == byte) decoder.feed(id, text);
    }
    EXPECT_EQ(text, i + 1 == emoji.size() ? emoji : "") << "after byte " << i;
  }
}

int32_t id_of_byte(const Tokenizer& tokenizer, char byte) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_bytes().of(id) == std::string(1, byte)) return id;
  }
  return -1;
}

TEST_P(EachKind, A_U8_3_EndsInTheMiddleOfACharacter) {
  IncrementalText decoder(tokenizer.token_bytes(), {});
  std::string text;
  decoder.feed(id_of_byte(tokenizer, '\xF0'), text);
  decoder.feed(id_of_byte(tokenizer, '\x9F'), text);
  EXPECT_EQ(text, "");
  decoder.finish(text);
  EXPECT_EQ(text, kReplacement) << "nothing is lost";
  decoder.finish(text);
  EXPECT_EQ(text, kReplacement) << "and nothing told twice";
}

TEST_P(EachKind, A_U8_1_InvalidBytes) {
  IncrementalText decoder(tokenizer.token_bytes(), {});
  std::string text;
  for (char byte : std::string("a\xFF\xC3"
                               "b\x80"))
    decoder.feed(id_of_byte(tokenizer, byte), text);
  decoder.finish(text);
  EXPECT_EQ(text, "a" + kReplacement + kReplacement + "b" + kReplacement);
}

TEST(IncrementalText, HiddenTokensDoNotBreakACharacter) {
  const Tokenizer tokenizer = Tokenizer::create(testing::byte_level_vocab().data()).value();
  const Ids ids = {id_of_byte(tokenizer, '\xC3'), 2 /* <|im_end|> */, id_of_byte(tokenizer, '\xA9')};
  EXPECT_EQ(tokenizer.decode(ids, true), "é");
  EXPECT_EQ(tokenizer.decode(ids, false), kReplacement + "<|im_end|>" + kReplacement);
}

TEST(IncrementalText, StripsOneSpaceAtTheVeryStartOnly) {
  const testing::HandVocab vocab = testing::spm_vocab();
  const Tokenizer tokenizer = Tokenizer::create(vocab.data()).value();
  const int32_t space_a = vocab.id("▁a"), space = vocab.id("▁"), bos = vocab.id("<s>");
  const auto decode = [&](const Ids& ids, IncrementalText::Options options) {
    IncrementalText decoder(tokenizer.token_bytes(), options);
    std::string text;
    for (int32_t id : ids) decoder.feed(id, text);
    return text;
  };
  EXPECT_EQ(decode({bos, space_a, space_a}, {.strip_leading_space = true}), "a a")
      << "a hidden token is no start";
  EXPECT_EQ(decode({space, space_a}, {.strip_leading_space = true}), " a");
  EXPECT_EQ(decode({space_a}, {}), " a");
}

TEST(IncrementalText, PartOfATokenWhereAStopStringCuts) {
  const Tokenizer tokenizer = Tokenizer::create(testing::byte_level_vocab().data()).value();
  IncrementalText decoder(tokenizer.token_bytes(), {});
  std::string text;
  decoder.feed_bytes("caf\xC3", text);
  EXPECT_EQ(text, "caf");
  decoder.feed_bytes("\xA9!", text);
  EXPECT_EQ(text, "café!");
}

}  // namespace
}  // namespace gapless
