#include "server/json_scanner.h"

#include <string_view>

#include "server/json_body.h"

namespace gapless {

namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_scalar(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '-' || c == '+' || c == '.';
}

}  // namespace

JsonScanner::Event JsonScanner::next(char c) {
  if (expect_ == Expect::kBroken) return Event::kBroken;
  if (in_string_) return in_string(c);
  if (in_scalar_) {
    if (is_scalar(c)) return Event::kNone;
    in_scalar_ = false;
    value_ended();
  }
  return is_space(c) ? Event::kNone : structural(c);
}

JsonScanner::Event JsonScanner::structural(char c) {
  switch (expect_) {
    case Expect::kFirstElement:
      return c == ']' ? close(c) : value(c);
    case Expect::kValue:
      return value(c);
    case Expect::kFirstKey:
      if (c == '}') return close(c);
      [[fallthrough]];
    case Expect::kKey:
      if (c != '"') return broken();
      in_string_ = is_key_ = true;
      return Event::kKeyBegin;
    case Expect::kColon:
      if (c != ':') return broken();
      expect_ = Expect::kValue;
      return Event::kNone;
    case Expect::kNext:
      if (c != ',') return close(c);
      expect_ = in_object() ? Expect::kKey : Expect::kValue;
      return Event::kNone;
    case Expect::kNothing:
    case Expect::kBroken:
      break;
  }
  return broken();
}

JsonScanner::Event JsonScanner::value(char c) {
  if (c == '{' || c == '[') return open(c);
  if (c == '"') {
    in_string_ = true;
    is_key_ = false;
    return Event::kValueBegin;
  }
  if (!is_scalar(c)) return broken();
  in_scalar_ = true;
  return Event::kValueBegin;
}

JsonScanner::Event JsonScanner::open(char c) {
  if (depth() >= kMaxJsonDepth) return broken();
  open_.push_back(c);
  expect_ = c == '{' ? Expect::kFirstKey : Expect::kFirstElement;
  return Event::kValueBegin;
}

JsonScanner::Event JsonScanner::close(char c) {
  if (open_.empty() || c != (open_.back() == '{' ? '}' : ']')) return broken();
  open_.pop_back();
  value_ended();
  return Event::kValueEnd;
}

JsonScanner::Event JsonScanner::in_string(char c) {
  if (static_cast<unsigned char>(c) < 0x20) return broken();
  if (escaped_) {
    constexpr std::string_view kEscapes = "\"\\/bfnrtu";
    if (kEscapes.find(c) == std::string_view::npos) return broken();
    escaped_ = false;
    return Event::kNone;
  }
  escaped_ = c == '\\';
  if (c != '"') return Event::kNone;
  in_string_ = false;
  if (is_key_) {
    expect_ = Expect::kColon;
    return Event::kKeyEnd;
  }
  value_ended();
  return Event::kValueEnd;
}

JsonScanner::Event JsonScanner::broken() {
  expect_ = Expect::kBroken;
  return Event::kBroken;
}

}  // namespace gapless
