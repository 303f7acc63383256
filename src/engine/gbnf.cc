#include "engine/gbnf.h"

#include <algorithm>
#include <map>

namespace gapless {
namespace {

constexpr int kMaxDepth = 12;  // of groups; Lark's reader has a limit of 30, and there are two for one here

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::string> run() {
    skip_space();
    while (at_ < text_.size()) RETURN_IF_ERROR(read_rule());
    if (!names_.contains("root")) return Status::invalid("there is no rule named root");
    for (const auto& [name, rule] : names_)
      if (!rule.defined) return Status::invalid("the rule {} is used and not defined", name);
    return std::move(lark_);
  }

 private:
  struct Rule {
    std::string lark_name;
    bool defined = false;
  };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size()) {
      if (peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(peek()) != std::string_view::npos) {
        at_++;
      } else {
        break;
      }
    }
  }
  Status error(std::string_view what) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + std::ptrdiff_t(std::min(at_, text_.size())), '\n');
    return Status::invalid("line {}: {}", line + 1, what);
  }

  std::string_view read_name() {
    const size_t begin = at_;
    while (is_name_char(peek())) at_++;
    return text_.substr(begin, at_ - begin);
  }
  // Names of Lark's rules are in lower case; the number keeps different ones apart.
  Rule& rule_of(std::string_view name) {
    const auto [it, is_new] = names_.try_emplace(std::string(name));
    if (is_new) {
      std::string& lark = it->second.lark_name;
      lark = name == "root" ? "start" : fmt::format("r{}-", names_.size());
      if (name != "root")
        for (char c : name) lark += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    }
    return it->second;
  }
  bool at_rule_end() {
    const size_t begin = at_;
    const bool named = !read_name().empty();
    skip_space();
    const bool next_rule = named && text_.substr(at_).starts_with("::=");
    const bool end = at_ >= text_.size();
    at_ = begin;
    return next_rule || (end && !named);
  }

  Status read_rule() {
    const std::string_view name = read_name();
    skip_space();
    if (name.empty() || !take("::=")) return error("expected the name of a rule and ::=");
    Rule& rule = rule_of(name);
    if (rule.defined) return error(fmt::format("the rule {} is defined twice", name));
    rule.defined = true;
    lark_ += rule.lark_name + ":";
    RETURN_IF_ERROR(read_alternatives(0));
    lark_ += "\n";
    return peek() == ')' ? error("a ) without its (") : Status::ok();
  }

  Status read_alternatives(int depth) {
    for (;;) {
      skip_space();
      bool empty = true;
      for (; peek() != '|' && peek() != ')' && !at_rule_end(); skip_space(), empty = false)
        RETURN_IF_ERROR(read_repeated(depth));
      if (empty) lark_ += " \"\"";
      if (!take("|")) return {};
      lark_ += " |";
    }
  }

  // An item and what repeats it.
  Status read_repeated(int depth) {
    lark_ += " (";
    RETURN_IF_ERROR(read_item(depth));
    lark_ += ")";
    skip_space();
    if (peek() == '{') return read_counts();
    if (peek() == '*' || peek() == '+' || peek() == '?') lark_ += text_[at_++];
    return {};
  }

  // {m}, {m,}, {m,n} or {,n}.
  Status read_counts() {
    const size_t end = text_.find('}', at_);
    const std::string_view counts = text_.substr(at_, end == std::string_view::npos ? end : end + 1 - at_);
    const bool plain = std::ranges::all_of(
        counts, [](char c) { return is_digit(c) || c == ',' || c == '{' || c == '}' || c == ' '; });
    if (end == std::string_view::npos || !plain || counts.size() > 30)
      return error("expected {m}, {m,} or {m,n}");
    lark_.append(counts);
    at_ = end + 1;
    return {};
  }

  Status read_item(int depth) {
    const char c = peek();
    if (c == '"') return read_literal();
    if (c == '[') return read_class();
    if (take(".")) {
      lark_ += " /(?s:.)/";
      return {};
    }
    if (c == '(') return read_group(depth);
    const std::string_view name = read_name();
    if (name.empty()) return error("expected a literal, a character class, a group or the name of a rule");
    lark_ += " " + rule_of(name).lark_name;
    return {};
  }

  Status read_group(int depth) {
    if (depth >= kMaxDepth) return error(fmt::format("groups are nested deeper than {}", kMaxDepth));
    at_++;
    lark_ += " (";
    RETURN_IF_ERROR(read_alternatives(depth + 1));
    if (!take(")")) return error("a ( without its )");
    lark_ += ")";
    return {};
  }

  Status read_literal() {
    lark_ += " \"";
    for (at_++; at_ < text_.size() && peek() != '"';) {
      const auto c = uint8_t(peek());
      if (c >= 0x20 && c != '\\' && c != 0x7F) {
        lark_ += text_[at_++];
      } else {
        ASSIGN_OR_RETURN(const uint32_t code, read_code());
        append_json_escape(code);
      }
    }
    if (!take("\"")) return error("a literal without its closing quote");
    lark_ += "\" ";
    return {};
  }

  // As UTF-16, like JSON.
  void append_json_escape(uint32_t code) {
    if (code > 0xFFFF) {
      lark_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      lark_ += fmt::format("\\u{:04x}", code);
    }
  }

  Status read_class() {
    lark_ += " /[";
    at_++;
    if (take("^")) lark_ += "^";
    bool empty = true;
    for (; at_ < text_.size() && peek() != ']'; empty = false) {
      RETURN_IF_ERROR(read_class_char());
      const bool range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range) continue;
      at_++;
      lark_ += "-";
      RETURN_IF_ERROR(read_class_char());
    }
    if (!take("]")) return error("a character class without its ]");
    if (empty) return error("an empty character class");
    lark_ += "]/";
    return {};
  }
  // Bytes of longer characters go through as they are.
  Status read_class_char() {
    if (uint8_t(peek()) >= 0x80) {
      while (uint8_t(peek()) >= 0x80) {
        lark_ += text_[at_++];
        if ((uint8_t(peek()) & 0xC0) != 0x80) break;
      }
      return {};
    }
    ASSIGN_OR_RETURN(const uint32_t code, read_code());
    lark_ += fmt::format("\\x{{{:X}}}", code);
    return {};
  }

  // An ASCII character or an escape.
  Result<uint32_t> read_code() {
    const char c = text_[at_++];
    if (c != '\\') return uint32_t(uint8_t(c));
    const char escape = peek();
    at_ += at_ < text_.size();
    switch (escape) {
      case 'n':
        return uint32_t{'\n'};
      case 'r':
        return uint32_t{'\r'};
      case 't':
        return uint32_t{'\t'};
      case 'x':
        return read_hex(2);
      case 'u':
        return read_hex(4);
      case 'U':
        return read_hex(8);
      default:
        break;
    }
    if (escape != '\0' && std::string_view("\\\"/[]-^.'").find(escape) != std::string_view::npos)
      return uint32_t(uint8_t(escape));
    return error("an escape that is none of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
  }
  Result<uint32_t> read_hex(int digits) {
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const auto value = std::string_view("0123456789abcdef").find(char(peek() | 0x20));
      if (peek() < '0' || value == std::string_view::npos) return error("expected hexadecimal digits");
      code = code << 4 | uint32_t(value);
    }
    if (code > 0x10FFFF) return error("a character beyond U+10FFFF");
    return code;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string lark_;
  std::map<std::string, Rule, std::less<>> names_;
};

}  // namespace

Result<std::string> lark_of_gbnf(std::string_view gbnf) {
  return Reader(gbnf).run();
}

}  // namespace gapless
