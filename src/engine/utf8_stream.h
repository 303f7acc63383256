// Bytes in pieces to valid UTF-8 in pieces: never half a character; invalid bytes become U+FFFD, one per
// maximal subpart (Unicode 15, section 3.9, as Python's errors="replace" and the web's decoders do).
#pragma once

#include <string>
#include <string_view>

namespace gapless {

class Utf8Stream {
 public:
  // The text that is complete with these bytes; at most three bytes are held back.
  std::string feed(std::string_view bytes);
  // What is left: one U+FFFD if an unfinished character is held back. Resets the stream.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace gapless
