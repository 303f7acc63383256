#include "engine/utf8_stream.h"

#include <cstdint>

namespace gapless {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Step {
  size_t bytes;  // consumed; 0: the input ends inside a character that may still become valid
  bool valid;
};

// The first character of s, or its maximal invalid subpart. s is not empty. Table 3-7 of the Unicode
// standard.
Step next_character(std::string_view s) {
  const auto at = [&](size_t i) { return uint8_t(s[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true};
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0) return {1, false};
  for (size_t i = 1; i < length; i++) {
    if (i == s.size()) return {0, false};
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (at(i) < low || at(i) > high) return {i, false};
  }
  return {length, true};
}

}  // namespace

std::string Utf8Stream::feed(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Step step = next_character(rest);
    if (step.bytes == 0) break;
    out += step.valid ? rest.substr(0, step.bytes) : kReplacement;
    rest.remove_prefix(step.bytes);
  }
  held_.erase(0, held_.size() - rest.size());
  return out;
}

std::string Utf8Stream::finish() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace gapless
