#include "server/call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gapless {

using Event = JsonScanner::Event;

CallReader::State CallReader::next(char c) {
  const Event event = scanner_.next(c);
  text_.push_back(c);
  if (event == Event::kBroken || !take(event)) return State::kBroken;
  if (event != Event::kValueEnd || scanner_.depth() > 0) return State::kMore;
  return !calls_.empty() && nlohmann::json::accept(text_) ? State::kEnd : State::kBroken;
}

// What the last byte did. False: this is no call.
bool CallReader::take(Event event) {
  if (event == Event::kValueBegin && !begin_value()) return false;
  if (in_arguments_) calls_.back().arguments.push_back(text_.back());
  if (event == Event::kValueEnd) return end_value();
  if (scanner_.depth() != call_depth_) return true;
  if (event == Event::kKeyBegin) begin_ = text_.size() - 1;
  return event != Event::kKeyEnd || end_key();
}

bool CallReader::begin_value() {
  const char c = text_.back();
  const bool opens = c == '{' || c == '[';
  if (call_depth_ == 0) call_depth_ = c == '[' ? 2 : 1;
  const int holder = scanner_.depth() - (opens ? 1 : 0);  // depth of what the value stands in
  if (holder == call_depth_ - 1) {                        // a call
    calls_.emplace_back();
    return c == '{';
  }
  if (holder != call_depth_) return true;
  begin_ = text_.size() - 1;
  in_arguments_ = member_ == Member::kArguments;
  return member_ == Member::kOther || c == (in_arguments_ ? '{' : '"');
}

bool CallReader::end_key() {
  const std::string key = string_from_begin();
  member_ = key == "name"                               ? Member::kName
            : key == "arguments" || key == "parameters" ? Member::kArguments
                                                        : Member::kOther;
  const ToolCall& call = calls_.back();
  if (member_ == Member::kName) return call.name.empty();
  if (member_ == Member::kArguments) return call.arguments.empty();
  return key == "id" || key == "type";
}

bool CallReader::end_value() {
  if (calls_.empty()) return true;  // an array without any
  ToolCall& call = calls_.back();
  if (scanner_.depth() == call_depth_) {  // a member's
    in_arguments_ = false;
    if (member_ != Member::kName) return true;
    const std::string name = string_from_begin();
    if (std::find(functions_->begin(), functions_->end(), name) == functions_->end()) return false;
    call.name = name;
    return true;
  }
  if (scanner_.depth() != call_depth_ - 1) return true;
  if (call.arguments.empty()) call.arguments = "{}";
  return !call.name.empty();
}

std::string CallReader::string_from_begin() const {
  const auto value = nlohmann::json::parse(text_.begin() + ptrdiff_t(begin_), text_.end(), nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace gapless
