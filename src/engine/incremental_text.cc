#include "engine/incremental_text.h"

namespace gapless {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Of the character that `lead` begins; 0: no character begins so.
size_t length_by_lead(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

}  // namespace

bool Utf8Stream::continues(uint8_t byte) const {
  if (n_pending_ > 1) return byte >= 0x80 && byte <= 0xBF;
  switch (
      uint8_t(pending_[0])) {  // the second byte: no overlong forms, no surrogates, nothing above U+10FFFF
    case 0xE0:
      return byte >= 0xA0 && byte <= 0xBF;
    case 0xED:
      return byte >= 0x80 && byte <= 0x9F;
    case 0xF0:
      return byte >= 0x90 && byte <= 0xBF;
    case 0xF4:
      return byte >= 0x80 && byte <= 0x8F;
    default:
      return byte >= 0x80 && byte <= 0xBF;
  }
}

void Utf8Stream::start(uint8_t byte, std::string& out) {
  length_ = length_by_lead(byte);
  if (length_ == 0) {
    out += kReplacement;
  } else if (length_ == 1) {
    out.push_back(char(byte));
  } else {
    pending_[0] = char(byte);
    n_pending_ = 1;
  }
}

void Utf8Stream::feed(std::string_view bytes, std::string& out) {
  for (char c : bytes) {
    const auto byte = uint8_t(c);
    if (n_pending_ == 0) {
      start(byte, out);
    } else if (continues(byte)) {
      pending_[n_pending_++] = c;
      if (n_pending_ == length_) {
        out.append(pending_.data(), length_);
        n_pending_ = 0;
      }
    } else {
      finish(out);
      start(byte, out);
    }
  }
}

void Utf8Stream::finish(std::string& out) {
  if (n_pending_ > 0) out += kReplacement;
  n_pending_ = 0;
}

void IncrementalText::feed_bytes(std::string_view bytes, std::string& out) {
  if (at_start_ && !bytes.empty()) {
    at_start_ = false;
    if (options_.strip_leading_space && bytes.front() == ' ') bytes.remove_prefix(1);
  }
  utf8_.feed(bytes, out);
}

}  // namespace gapless
