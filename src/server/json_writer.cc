#include "server/json_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gapless {

namespace {

struct Sequence {
  size_t length;  // bytes of the character, or of the maximal ill-formed part
  bool valid;
};

// The sequence at the front of `s`, which is not empty. Table 3-7 of the Unicode standard.
Sequence next_sequence(std::string_view s) {
  const auto lead = static_cast<unsigned char>(s[0]);
  if (lead < 0x80) return {1, true};
  size_t need = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 2;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 3;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i <= need; i++) {
    if (i >= s.size()) return {i, false};
    const auto byte = static_cast<unsigned char>(s[i]);
    if (byte < low || byte > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {need + 1, true};
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
  }
}

bool needs_escape(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\';
}

}  // namespace

void append_utf8_lossy(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const Sequence s = next_sequence(bytes);
    out.append(s.valid ? bytes.substr(0, s.length) : std::string_view("\xEF\xBF\xBD"));
    bytes.remove_prefix(s.length);
  }
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Sequence s = next_sequence(bytes);
    if (!s.valid) return false;
    bytes.remove_prefix(s.length);
  }
  return true;
}

std::string printable(std::string_view bytes, size_t max_bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Sequence s = next_sequence(bytes);
    if (out.size() + s.length > max_bytes) return out + "...";
    const auto c = static_cast<unsigned char>(bytes[0]);
    if (!s.valid) {
      out += "\xEF\xBF\xBD";
    } else if (c < 0x20 || c == 0x7F) {
      out += ' ';
    } else {
      out.append(bytes.substr(0, s.length));
    }
    bytes.remove_prefix(s.length);
  }
  return out;
}

void JsonWriter::separate() {
  if (out_.size() == start_) return;
  const char last = out_.back();
  if (last != '{' && last != '[' && last != ':') out_ += ',';
}

JsonWriter& JsonWriter::open(char c) {
  separate();
  out_ += c;
  return *this;
}

JsonWriter& JsonWriter::close(char c) {
  out_ += c;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += '"';
  out_ += name;
  out_ += "\":";
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  separate();
  out_ += '"';
  while (!value.empty()) {
    const auto c = static_cast<unsigned char>(value[0]);
    if (c < 0x80) {
      const auto plain_end = std::find_if(value.begin(), value.end(), [](char x) {
        return static_cast<unsigned char>(x) >= 0x80 || needs_escape(x);
      });
      const size_t plain = plain_end - value.begin();
      out_.append(value.substr(0, plain));
      if (plain == 0) append_escaped(out_, value[0]);
      value.remove_prefix(std::max<size_t>(plain, 1));
    } else {
      const Sequence s = next_sequence(value);
      out_.append(s.valid ? value.substr(0, s.length) : std::string_view("\xEF\xBF\xBD"));
      value.remove_prefix(s.length);
    }
  }
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  separate();
  const fmt::format_int text(value);
  out_.append(text.data(), text.size());
  return *this;
}

JsonWriter& JsonWriter::fixed(double value, int decimals) {
  if (!std::isfinite(value)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{:.{}f}", value, decimals);
  return *this;
}

JsonWriter& JsonWriter::logprob(float value) {
  return number(std::isfinite(value) ? value : kLogprobFloor);
}

JsonWriter& JsonWriter::number(float value) {
  if (!std::isfinite(value)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  separate();
  out_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  out_ += "null";
  return *this;
}

}  // namespace gapless
