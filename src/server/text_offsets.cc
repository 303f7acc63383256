#include "server/text_offsets.h"

#include <algorithm>

namespace gapless {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void TextOffsets::restart(int64_t at) {
  utf8_ = {};
  begun_ = at;
}

void TextOffsets::add(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); i++) {
    begun_ += utf8_.begins_character(bytes[i]);
    utf8_.feed(bytes.substr(i, 1), text_);
  }
  text_.clear();
}

}  // namespace gapless
