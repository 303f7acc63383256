// Small vocabularies written by hand, one of each kind, for tests of the text files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"

namespace gapless::testing {

// The lists that a TokenizerData views.
struct HandVocab {
  std::string model;
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;

  int32_t add(std::string token, TokenType type = TokenType::kNormal, float score = 0) {
    tokens.push_back(std::move(token));
    types.push_back(int32_t(type));
    scores.push_back(score);
    return int32_t(tokens.size()) - 1;
  }
  // A piece that two others join to.
  int32_t add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  int32_t id(std::string_view token) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == token) return int32_t(i);
    }
    return -1;
  }
  // Valid while this object lives and does not change.
  TokenizerData data() const {
    TokenizerData data{.model = model, .pre = model == "gpt2" ? "gpt-2" : ""};
    data.tokens.assign(tokens.begin(), tokens.end());
    data.merges.assign(merges.begin(), merges.end());
    data.types = types;
    data.scores = scores;
    return data;
  }
};

// How byte-level BPE writes a byte: printable Latin-1 as itself, the others in order from U+0100 on (U+0120
// is the space).
inline std::string byte_level_char(int byte) {
  int code = byte, next = 0x100;
  for (int b = 0; b <= byte; ++b) {
    const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
    code = printable ? b : next++;
  }
  if (code < 0x80) return std::string(1, char(code));
  return {char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
}

// Every byte, a few words, ChatML's control tokens and a user-defined run of newlines.
inline HandVocab byte_level_vocab() {
  HandVocab vocab;
  vocab.model = "gpt2";
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"}) {
    vocab.add(control, TokenType::kControl);
  }
  vocab.add("\n\n\n", TokenType::kUserDefined);
  for (int byte = 0; byte < 256; ++byte) vocab.add(byte_level_char(byte));
  for (auto [left, right] : {std::pair("h", "e"), {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "hello"}}) {
    vocab.add_merge(left, right);
  }
  return vocab;
}

// SentencePiece style: letters, some joined pieces with scores, and a token for every byte.
inline HandVocab spm_vocab() {
  HandVocab vocab;
  vocab.model = "llama";
  vocab.add("<unk>", TokenType::kUnknown);
  vocab.add("<s>", TokenType::kControl);
  vocab.add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    const char* digits = "0123456789ABCDEF";
    vocab.add(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", TokenType::kByte);
  }
  for (const char* letter : {"▁", "a", "b", "c", "d"}) vocab.add(letter, TokenType::kNormal, -100);
  vocab.add("ab", TokenType::kNormal, -2);
  vocab.add("bc", TokenType::kNormal, -1);
  vocab.add("abc", TokenType::kNormal, -3);
  vocab.add("▁a", TokenType::kNormal, -4);
  vocab.add("aa", TokenType::kNormal, -5);
  vocab.add("<b>", TokenType::kUserDefined);
  return vocab;
}

}  // namespace gapless::testing
