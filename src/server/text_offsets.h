// Where tokens begin in a text, in characters (code points) as the client counts them: bytes that are not
// UTF-8 count as the U+FFFD that stands for them. A character belongs to the token that begins it; a token
// that only goes on with one has no width, like one that adds no text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/incremental_text.h"

namespace gapless {

// The characters of valid UTF-8.
int64_t count_characters(std::string_view text);

class TextOffsets {
 public:
  // Another text begins here: nothing goes on with the character that is open.
  void restart(int64_t at);
  int64_t next() const { return begun_; }  // of a token that comes now
  void add(std::string_view bytes);

 private:
  Utf8Stream utf8_;
  std::string text_;  // room for what utf8_ writes
  int64_t begun_ = 0;
};

}  // namespace gapless
