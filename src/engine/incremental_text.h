// Token ids to text, one at a time: what has become certain is appended, half a character is held back, no
// byte is lost at the end, and the cost of a token does not depend on how many came before. The same text as
// decoding all ids at once. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "sampling/token_bytes.h"

namespace gapless {

// A stream of bytes to valid UTF-8. Each maximal part of a character that is not completed becomes one U+FFFD
// (Unicode 3.9, table 3-7; as Python's errors="replace").
class Utf8Stream {
 public:
  void feed(std::string_view bytes, std::string& out);
  void finish(std::string& out);
  // Whether `byte`, fed next, would begin a character (or a U+FFFD) of its own: the characters of the whole
  // text are the bytes that do.
  bool begins_character(char byte) const { return n_pending_ == 0 || !continues(uint8_t(byte)); }

 private:
  bool continues(uint8_t byte) const;
  void start(uint8_t byte, std::string& out);

  std::array<char, 4> pending_{};
  size_t n_pending_ = 0, length_ = 0;  // length_: of the whole character
};

class IncrementalText {
 public:
  struct Options {
    bool skip_special = true;          // control tokens add nothing
    bool strip_leading_space = false;  // the tokens begin a text of a tokenizer with add_space_prefix
  };
  // `tokens` must outlive this.
  IncrementalText(const TokenBytes& tokens, Options options) : tokens_(&tokens), options_(options) {}

  void feed(int32_t id, std::string& out) { feed_bytes(tokens_->text_of(id, options_.skip_special), out); }
  // A part of a token, where a stop string cuts it.
  void feed_bytes(std::string_view bytes, std::string& out);
  // What is held back can no longer be completed: it becomes U+FFFD.
  void finish(std::string& out) { utf8_.finish(out); }

 private:
  const TokenBytes* tokens_;
  Options options_;
  bool at_start_ = true;
  Utf8Stream utf8_;
};

}  // namespace gapless
