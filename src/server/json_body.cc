#include "server/json_body.h"

#include <algorithm>

#include "server/json_writer.h"

namespace gapless {

namespace {

// Walks the text once, without recursion: depth, number of values, and where the top-level members are. It
// assumes nothing of the text; where that is not JSON the spans mean nothing, and the parser that runs next
// says so.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  template <class OnMember>
  Status run(OnMember on_member) {
    for (size_t i = 0; i < text_.size(); i++) {
      const char c = text_[i];
      if (c == '"') {
        const size_t end = string_end(i);
        if (depth_ == 1 && value_begin_ == 0) key_ = text_.substr(i + 1, end - i - 1);
        i = end;
      } else if (c == '{' || c == '[') {
        if (++depth_ > kMaxJsonDepth) {
          return Status::invalid("the body is nested deeper than {} levels (at byte {})", kMaxJsonDepth, i);
        }
        values_++;
      } else if (c == ',' || c == '}' || c == ']') {
        values_ += c == ',';
        if (depth_ == 1 && value_begin_ != 0) {
          on_member(key_, value_begin_, i);
          value_begin_ = 0;
        }
        if (c != ',') depth_--;
      } else if (c == ':' && depth_ == 1) {
        value_begin_ = i + 1;
      }
      if (values_ > kMaxJsonValues)
        return Status::invalid("the body holds more than {} JSON values", kMaxJsonValues);
    }
    return {};
  }

 private:
  // The closing quote, or the last byte.
  size_t string_end(size_t open) const {
    for (size_t i = open + 1; i < text_.size(); i++) {
      if (text_[i] == '\\') {
        i++;
      } else if (text_[i] == '"') {
        return i;
      }
    }
    return text_.size() - 1;
  }

  std::string_view text_, key_;
  size_t value_begin_ = 0;  // 0: not inside a top-level value
  int depth_ = 0;
  int64_t values_ = 0;
};

// In words, where the parser can tell. Its own message holds what it read last, the client's bytes: only what
// stands before and at its end is looked at.
std::string_view cause_of(std::string_view text, const nlohmann::json::parse_error& error) {
  const std::string_view whole = error.what(), what = whole.substr(0, whole.find("; last read:"));
  const auto says = [&](std::string_view words) { return what.find(words) != std::string_view::npos; };
  const std::string_view at = text.substr(std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0));
  const bool not_finite = at.starts_with('N') || at.starts_with('I');
  if (whole.ends_with("expected end of input")) return "something follows the object";
  if (says("surrogate")) return "half of a surrogate pair in a string";
  if (says("control character")) return "a control character in a string, it must be escaped";
  if (says("missing closing quote")) return "a string without its closing quote";
  if (says("forbidden character after backslash") || says("hex digits"))
    return "an escape that JSON does not have";
  if ((says("invalid literal") || says("invalid number")) && not_finite)
    return "NaN and Infinity are not JSON";
  if (says("unexpected end of input")) return "it ends too early";
  if (says("invalid number")) return "a number that JSON does not have";
  return "";
}

Status syntax_error(std::string_view text, const nlohmann::json::parse_error& error) {
  const size_t byte = error.byte;
  const std::string_view cause = cause_of(text, error);
  const std::string_view before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return Status::invalid("the body is not valid JSON: {} at line {}, column {} (byte {} of {})",
                         cause.empty() ? "error" : cause, line, column, byte, text.size());
}

}  // namespace

Result<JsonBody> JsonBody::parse(std::string text) {
  if (text.empty()) return Status::invalid("the body is empty: a JSON object is expected");
  JsonBody body;
  body.text_ = std::move(text);
  RETURN_IF_ERROR(body.scan());
  try {
    body.root_ = nlohmann::json::parse(body.text_);
  } catch (const nlohmann::json::parse_error& error) {
    if (!is_valid_utf8(body.text_)) return Status::invalid("the body is not valid UTF-8");
    return syntax_error(body.text_, error);
  } catch (const nlohmann::json::exception&) {  // a number that no double can hold
    return Status::invalid("the body is not valid JSON: a number is out of range");
  }
  if (!body.root_.is_object()) return Status::invalid("the body must be a JSON object");
  return body;
}

Status JsonBody::scan() {
  return Scanner(text_).run([this](std::string_view key, size_t begin, size_t end) {
    members_.insert_or_assign(std::string(key),
                              Span{begin, end});  // of duplicate keys the last one counts, as in the parser
  });
}

std::string JsonBody::raw(const std::string& key) const {
  const auto it = members_.find(key);
  if (it != members_.end()) return text_.substr(it->second.begin, it->second.end - it->second.begin);
  const auto value = root_.find(key);  // a key that was written with escapes
  return value == root_.end() ? std::string() : value->dump();
}

}  // namespace gapless
