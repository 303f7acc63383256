// JSON text, appended to a string. What comes out is always valid UTF-8 and valid JSON: invalid bytes become
// U+FFFD, and a logprob that is not finite becomes the floor that OpenAI uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gapless {

inline constexpr float kLogprobFloor = -9999.0f;

// One U+FFFD for each maximal part of an ill-formed sequence (Unicode 15, section 3.9).
void append_utf8_lossy(std::string& out, std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);
// At most max_bytes of it, cut between characters, control characters replaced: for values in messages and
// log lines.
std::string printable(std::string_view bytes, size_t max_bytes = 100);

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out), start_(out.size()) {}
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);  // name: ASCII without quotes
  JsonWriter& string(std::string_view value);
  JsonWriter& integer(int64_t value);
  JsonWriter& logprob(float value);               // the shortest text that reads back as the same float
  JsonWriter& number(float value);                // the same; null where it is not finite
  JsonWriter& fixed(double value, int decimals);  // null where it is not finite
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // a value that is JSON already
  JsonWriter& string_or_null(std::string_view value) { return value.empty() ? null() : string(value); }

 private:
  void separate();
  JsonWriter& open(char c);
  JsonWriter& close(char c);

  std::string& out_;
  const size_t start_;
};

}  // namespace gapless
