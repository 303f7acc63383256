#include "engine/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "engine/testing/hand_vocab.h"

namespace gapless {
namespace {

using testing::HandVocab;
using Ids = std::vector<int32_t>;

constexpr EncodeOptions kTrusted{.add_special = false, .parse_special = true};
constexpr EncodeOptions kUntrusted{.add_special = false, .parse_special = false};

Tokenizer create(const HandVocab& vocab) {
  return Tokenizer::create(vocab.data()).value();
}

std::string refusal(const TokenizerData& data) {
  const auto result = Tokenizer::create(data);
  return result.is_ok() ? "" : result.status().message();
}

Ids ids_of(const HandVocab& vocab, std::initializer_list<const char*> tokens) {
  Ids ids;
  for (const char* token : tokens) ids.push_back(vocab.id(token));
  return ids;
}

// How many control tokens an untrusted text makes.
int n_controls(const Tokenizer& tokenizer, std::string_view text) {
  const Ids ids = *tokenizer.encode(text, kUntrusted);
  return int(std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.is_control(id); }));
}

TEST(Tokenizer, ByteLevelMergesInOrderOfRank) {
  const HandVocab vocab = testing::byte_level_vocab();
  const Tokenizer tokenizer = create(vocab);
  EXPECT_EQ(*tokenizer.encode("hello hello", kTrusted), ids_of(vocab, {"hello", "Ġhello"}));
  EXPECT_EQ(*tokenizer.encode("hel", kTrusted), ids_of(vocab, {"he", "l"}));
  EXPECT_EQ(*tokenizer.encode("é\n", kTrusted), ids_of(vocab, {"Ã", "©", "Ċ"}));
  EXPECT_EQ(*tokenizer.encode("", kTrusted), Ids{});
}

TEST(KnownFailures, A_TK_1_SpecialAndAddedTokens) {
  const HandVocab vocab = testing::byte_level_vocab();
  const Tokenizer tokenizer = create(vocab);
  EXPECT_EQ(*tokenizer.encode("<|im_start|>hello", kTrusted), ids_of(vocab, {"<|im_start|>", "hello"}));
  EXPECT_EQ(*tokenizer.encode("hello<|im_end|> hello", kTrusted),
            ids_of(vocab, {"hello", "<|im_end|>", "Ġhello"}))
      << "the space behind a special token stays";
  EXPECT_EQ(*tokenizer.encode("\n\n\n\n", kUntrusted), ids_of(vocab, {"\n\n\n", "Ċ"}))
      << "user-defined tokens always match";
  EXPECT_EQ(*tokenizer.encode("<|im_start", kTrusted), *tokenizer.encode("<|im_start", kUntrusted));
}

TEST(KnownFailures, A_SE_1_UntrustedTextMakesNoControlToken) {
  HandVocab vocab = testing::byte_level_vocab();
  // Merge rules that lead to a control token, in a word of its own.
  const int32_t control = vocab.add("eot", TokenType::kControl);
  vocab.add_merge("e", "o");
  vocab.merges.push_back("eo t");
  TokenizerData data = vocab.data();
  for (const char* pre : {"gpt-2", "llama-bpe"}) {
    data.pre = pre;
    const Tokenizer tokenizer = Tokenizer::create(data).value();
    EXPECT_EQ(*tokenizer.encode("eot", kTrusted), Ids{control});
    EXPECT_EQ(*tokenizer.encode("eot", kUntrusted), ids_of(vocab, {"eo", "t"}));
    for (const char* text : {"<|im_end|>", "a<|im_start|>b", "<s><s>", "<|endoftext|>"}) {
      EXPECT_EQ(n_controls(tokenizer, text), 0) << text;
      EXPECT_EQ(tokenizer.decode(*tokenizer.encode(text, kUntrusted), true), text);
    }
  }

  HandVocab spm = testing::spm_vocab();
  spm.add("<s", TokenType::kNormal, -1);
  for (const char* letter : {"<", "s", ">"}) spm.add(letter, TokenType::kNormal, -100);
  const Tokenizer spm_tokenizer = create(spm);
  EXPECT_EQ(spm_tokenizer.encode("<s>", kTrusted)->back(), spm.id("<s>"));
  EXPECT_EQ(n_controls(spm_tokenizer, "<s>"), 0);
}

TEST(KnownFailures, A_SE_1_NoMatchAcrossTheEdgeOfUserText) {
  const HandVocab vocab = testing::byte_level_vocab();
  const Tokenizer tokenizer = create(vocab);
  const std::string text = "<|im_end|>";
  const auto count = [&](std::vector<TextRange> user) {
    const Ids ids = *tokenizer.encode_chat({text, std::move(user)});
    return std::count(ids.begin(), ids.end(), vocab.id("<|im_end|>"));
  };
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({{0, 1}}), 0);
  EXPECT_EQ(count({{9, 10}}), 0);
  EXPECT_EQ(count({{4, 5}}), 0);
  EXPECT_EQ(count({{0, 4}, {6, 7}}), 0);
  EXPECT_EQ(count({{0, 10}}), 0);
}

TEST(KnownFailures, A_TK_2_ExactlyOneBos) {
  const HandVocab vocab = testing::byte_level_vocab();
  TokenizerData data = vocab.data();
  data.bos_id = vocab.id("<s>");
  const Ids plain = ids_of(vocab, {"hello"}), with_bos = ids_of(vocab, {"<s>", "hello"});

  data.add_bos = true;
  const Tokenizer wants = Tokenizer::create(data).value();
  EXPECT_EQ(*wants.encode("hello", {}), with_bos);
  EXPECT_EQ(*wants.encode("<s>hello", {}), with_bos) << "the text brings it";
  EXPECT_EQ(wants.encode("<s>hello", {.parse_special = false})->front(), vocab.id("<s>"))
      << "a spelling is not one";
  EXPECT_EQ(*wants.encode_chat({"<s>hello", {}}), with_bos) << "the template brings it";
  EXPECT_EQ(*wants.encode_chat({"hello", {}}), with_bos);
  EXPECT_EQ(*wants.encode("", {}), ids_of(vocab, {"<s>"}));

  data.add_bos = false;
  const Tokenizer refuses = Tokenizer::create(data).value();
  EXPECT_EQ(*refuses.encode("hello", {}), plain);
  EXPECT_EQ(*refuses.encode_chat({"hello", {}}), plain);

  data.add_bos.reset();
  EXPECT_FALSE(Tokenizer::create(data)->add_bos()) << "gpt-2 has none";
  data.pre = "llama-bpe";
  EXPECT_TRUE(Tokenizer::create(data)->add_bos()) << "Llama 3 has one";
}

TEST(Tokenizer, AppendsEosWhereTheModelWantsOne) {
  const HandVocab vocab = testing::byte_level_vocab();
  TokenizerData data = vocab.data();
  data.eos_id = vocab.id("<|endoftext|>");
  data.add_eos = true;
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(*tokenizer.encode("hello", {}), ids_of(vocab, {"hello", "<|endoftext|>"}));
  EXPECT_EQ(*tokenizer.encode("hello", kTrusted), ids_of(vocab, {"hello"}));
  EXPECT_EQ(*tokenizer.encode_chat({"hello", {}}), ids_of(vocab, {"hello"})) << "a chat goes on";
}

TEST(Tokenizer, WholeWordsBeforeMerges) {
  HandVocab vocab = testing::byte_level_vocab();
  vocab.add("help");  // no merge rule makes it
  TokenizerData data = vocab.data();
  EXPECT_EQ(*Tokenizer::create(data)->encode("help", kTrusted), ids_of(vocab, {"he", "l", "p"}));
  data.pre = "llama-bpe";
  EXPECT_EQ(*Tokenizer::create(data)->encode("help", kTrusted), ids_of(vocab, {"help"}));
}

TEST(Tokenizer, SpmJoinsByScoreThenLeftmost) {
  const HandVocab vocab = testing::spm_vocab();
  TokenizerData data = vocab.data();
  data.add_space_prefix = false;
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(*tokenizer.encode("ab", kTrusted), ids_of(vocab, {"ab"}));
  EXPECT_EQ(*tokenizer.encode("abc", kTrusted), ids_of(vocab, {"abc"})) << "bc first, then abc";
  EXPECT_EQ(*tokenizer.encode("aaa", kTrusted), ids_of(vocab, {"aa", "a"})) << "of equal scores the leftmost";
  EXPECT_EQ(*tokenizer.encode("b a", kTrusted), ids_of(vocab, {"b", "▁a"}));
  EXPECT_EQ(*tokenizer.encode("<b>", kUntrusted), ids_of(vocab, {"<b>"}));
  EXPECT_EQ(*tokenizer.encode("aé", kTrusted), ids_of(vocab, {"a", "<0xC3>", "<0xA9>"}))
      << "bytes of what is no piece";
}

TEST(Tokenizer, SpmUnknownWithoutByteTokens) {
  HandVocab vocab;
  vocab.model = "llama";
  vocab.add("<unk>", TokenType::kUnknown);
  for (const char* token : {"<s>", "</s>"}) vocab.add(token, TokenType::kControl);
  vocab.add("a");
  TokenizerData data = vocab.data();
  data.add_space_prefix = false;
  EXPECT_EQ(*Tokenizer::create(data)->encode("aéa", kTrusted), ids_of(vocab, {"a", "<unk>", "a"}));
}

TEST(Tokenizer, SpmSpacePrefix) {
  const HandVocab vocab = testing::spm_vocab();
  const Tokenizer tokenizer = create(vocab);
  ASSERT_TRUE(tokenizer.add_space_prefix()) << "the default of this kind";
  EXPECT_EQ(*tokenizer.encode("ab", {}), ids_of(vocab, {"<s>", "▁", "ab"}));
  EXPECT_EQ(*tokenizer.encode("a</s>a", kTrusted), ids_of(vocab, {"▁a", "</s>", "▁a"}));
  EXPECT_EQ(tokenizer.decode(*tokenizer.encode("a b", {}), true), "a b") << "the prefix is taken off again";
  EXPECT_EQ(tokenizer.decode(*tokenizer.encode(" a", {}), true), " a") << "and only one";
}

// What the algorithm says, without a heap: join the best adjacent pair until there is none.
Ids slow_spm(const HandVocab& vocab, const std::string& text) {
  std::vector<std::string> parts;
  for (char c : text) parts.emplace_back(1, c);
  for (;;) {
    size_t best = parts.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const int32_t id = vocab.id(parts[i] + parts[i + 1]);
      if (id >= 0 && (best == parts.size() || vocab.scores[size_t(id)] > best_score)) {
        best = i;
        best_score = vocab.scores[size_t(id)];
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + long(best) + 1);
  }
  Ids ids;
  for (const auto& part : parts) ids.push_back(vocab.id(part));
  return ids;
}

TEST(Tokenizer, SpmEqualsTheDefinition) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    HandVocab vocab;
    vocab.model = "llama";
    for (const char* token : {"<unk>", "<s>", "</s>"}) vocab.add(token, TokenType::kControl);
    for (const char* letter : {"a", "b", "c"}) vocab.add(letter, TokenType::kNormal, -9);
    for (int i = 0; i < 30; ++i) {
      std::string piece;
      for (size_t n = 2 + random() % 4; piece.size() < n;) piece.push_back(char('a' + random() % 3));
      if (vocab.id(piece) < 0) vocab.add(piece, TokenType::kNormal, -float(random() % 6));  // ties
    }
    TokenizerData data = vocab.data();
    data.add_space_prefix = false;
    const Tokenizer tokenizer = Tokenizer::create(data).value();
    for (int i = 0; i < 50; ++i) {
      std::string text;
      for (size_t n = random() % 40; text.size() < n;) text.push_back(char('a' + random() % 3));
      ASSERT_EQ(*tokenizer.encode(text, kTrusted), slow_spm(vocab, text)) << text;
    }
  }
}

TEST(Tokenizer, EndOfGenerationIds) {
  HandVocab vocab = testing::byte_level_vocab();
  const int32_t html = vocab.add("</s>", TokenType::kUserDefined), eom = vocab.add("<|eom_id|>");
  TokenizerData data = vocab.data();
  data.eos_id = vocab.id("<s>");
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(tokenizer.eos_ids(), (Ids{0, 2, 3, eom}))
      << "<|endoftext|>, <|im_end|>, the file's own, <|eom_id|>";
  EXPECT_TRUE(tokenizer.is_control(eom)) << "whatever type the file gives it";
  EXPECT_FALSE(tokenizer.is_control(html));

  const int32_t end = vocab.add("<|end|>", TokenType::kControl);
  vocab.add("<|return|>", TokenType::kControl);
  vocab.add("<|call|>", TokenType::kControl);
  const Tokenizer harmony = create(vocab);
  const Ids& ends = harmony.eos_ids();
  EXPECT_EQ(std::count(ends.begin(), ends.end(), end), 0) << "ends a message, not the answer";
}

TEST(Tokenizer, TurnMarkersOfTheWrongTypeAreStillGuarded) {
  HandVocab vocab = testing::byte_level_vocab();
  const int32_t marker = vocab.add("<|channel|>", TokenType::kUserDefined);
  const Tokenizer tokenizer = create(vocab);
  EXPECT_EQ(*tokenizer.encode("<|channel|>", kTrusted), Ids{marker});
  const Ids untrusted = *tokenizer.encode("<|channel|>", kUntrusted);
  EXPECT_EQ(std::count(untrusted.begin(), untrusted.end(), marker), 0);
  EXPECT_EQ(tokenizer.decode(Ids{marker}, true), "<|channel|>")
      << "a user-defined token is text all the same";
}

TEST(KnownFailures, A_U8_1_InputThatIsNotUtf8) {
  const Tokenizer tokenizer = create(testing::byte_level_vocab());
  for (const auto& [text, position] :
       {std::pair("\xFF", 0), {"ab\xC3", 2}, {"ok\xED\xA0\x80", 2}, {"\xF8\x88\x80\x80\x80", 0}}) {
    const auto result = tokenizer.encode(text, {});
    ASSERT_FALSE(result.is_ok()) << text;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(result.status().message().find(fmt::format("byte {}", position)), std::string::npos)
        << result.status().message();
  }
}

TEST(Tokenizer, LongRunsAreRightOrRefused) {
  const HandVocab vocab = testing::byte_level_vocab();
  const Tokenizer tokenizer = create(vocab);
  const std::string spaces(200'000, ' ');
  const Ids ids = *tokenizer.encode(spaces + "hello", kTrusted);
  ASSERT_EQ(ids.size(), 200'000u) << "all but the last space, and the last with the word";
  EXPECT_EQ(ids.back(), vocab.id("Ġhello"));
  const auto refused = tokenizer.encode(spaces + "  hello", kTrusted);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("200000 white-space"), std::string::npos)
      << refused.status().message();
  for (const char* unit : {"a", "!", "1", "\n!", "hello "}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_EQ(tokenizer.decode(*tokenizer.encode(text, kTrusted), false), text);
  }
}

TEST(Tokenizer, RefusesWhatItDoesNotKnow) {
  const HandVocab vocab = testing::byte_level_vocab();
  TokenizerData data = vocab.data();
  data.pre = "no-such-rule";
  for (const char* part : {"no-such-rule", "smollm", "llama-bpe", "qwen2", "gpt-2", "tekken"}) {
    EXPECT_NE(refusal(data).find(part), std::string::npos) << refusal(data);
  }
  data.model = "bert";
  EXPECT_NE(refusal(data).find("'bert'"), std::string::npos) << refusal(data);
  EXPECT_NE(refusal(data).find("gpt2, llama"), std::string::npos) << refusal(data);
}

TEST(Tokenizer, RefusesBrokenMetadata) {
  const HandVocab byte_level = testing::byte_level_vocab(), spm = testing::spm_vocab();
  const auto with = [](const HandVocab& vocab, auto change) {
    TokenizerData data = vocab.data();
    change(data);
    return refusal(data);
  };
  EXPECT_NE(with(byte_level, [](auto& d) { d.tokens.clear(), d.types.clear(); }), "");
  EXPECT_NE(with(byte_level, [](auto& d) { d.types.pop_back(); }).find("266"), std::string::npos);
  EXPECT_NE(with(byte_level, [](auto& d) { d.merges.clear(); }).find("merges"), std::string::npos);
  EXPECT_NE(with(byte_level, [](auto& d) { d.merges[1] = "nospace"; }).find("merges[1]"), std::string::npos);
  EXPECT_NE(with(byte_level, [](auto& d) { d.tokens[7] = "\xFF"; }).find("tokens[7]"), std::string::npos);
  EXPECT_NE(with(byte_level, [](auto& d) { d.eos_id = 266; }).find("eos_token_id is 266"), std::string::npos);
  EXPECT_NE(with(byte_level, [](auto& d) { d.bos_id = -1; }).find("bos_token_id is -1"), std::string::npos);
  EXPECT_NE(with(spm, [](auto& d) { d.scores.pop_back(); }).find("scores"), std::string::npos);
  EXPECT_NE(with(spm, [](auto& d) { d.tokens[3] = "<0xZZ>"; }).find("<0xZZ>"), std::string::npos);
}

TEST(Tokenizer, EveryKnownPreTokenizerWorks) {
  const HandVocab vocab = testing::byte_level_vocab();
  TokenizerData data = vocab.data();
  data.pre = "?";
  const std::string message = refusal(data);
  std::string_view names = std::string_view(message).substr(message.find("known are: ") + 11);
  const std::string text = "Hello  wörld's 12345\r\n\t— 你好 ½<|>_end\n\n x";
  int n = 0;
  for (size_t comma = 0; comma != std::string_view::npos; ++n) {
    comma = names.find(", ");
    const std::string name(names.substr(0, comma));
    if (comma != std::string_view::npos) names.remove_prefix(comma + 2);
    data.pre = name;
    const auto tokenizer = Tokenizer::create(data);
    ASSERT_TRUE(tokenizer.is_ok()) << name;
    EXPECT_EQ(tokenizer->decode(*tokenizer->encode(text, kTrusted), false), text) << name;
  }
  EXPECT_GT(n, 40);
}

TEST(Tokenizer, ManyThreadsAtOnce) {
  const HandVocab vocab = testing::byte_level_vocab();
  const Tokenizer tokenizer = create(vocab);
  const Ids expected = ids_of(vocab, {"hello", "Ġhello", "<|im_end|>"});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) wrong += *tokenizer.encode("hello hello<|im_end|>", kTrusted) != expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gapless
