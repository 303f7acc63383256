#include "server/answer_parser.h"

#include <algorithm>

namespace gapless {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(kSpace), text.size());
}
size_t without_trailing_space(std::string_view text) {
  return text.find_last_not_of(kSpace) + 1;  // npos + 1 is 0
}
// Whether more text can make `text` begin with `marker`.
bool may_become(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}
// How many of the last bytes of `text` may be the beginning of `marker`.
size_t begun_at_end(std::string_view text, std::string_view marker) {
  for (size_t bytes = std::min(text.size(), marker.size() - 1); bytes > 0; bytes--) {
    if (text.ends_with(marker.substr(0, bytes))) return bytes;
  }
  return 0;
}

}  // namespace

AnswerParser::AnswerParser(const AnswerSyntax& syntax, bool begins_in_reasoning)
    : syntax_(syntax), state_(State::kStart), may_reason_(syntax.reasoning) {
  if (!syntax.reasoning || !begins_in_reasoning) return;
  state_ = State::kReasoning;
  trim_ = true;
}

void AnswerParser::feed(std::string_view text, std::vector<AnswerPart>& parts) {
  held_ += text;
  while (!held_.empty() && advance(parts)) {
  }
}

void AnswerParser::finish(std::vector<AnswerPart>& parts) {
  if (syntax_.only_calls && n_calls_ > 0) {
    held_.clear();  // of a call that has been sent as far as it came, or of the beginning of another
  } else if (state_ == State::kReasoning) {
    emit_text(AnswerPart::Kind::kReasoning, without_trailing_space(held_), parts);
  } else {
    emit_text(AnswerPart::Kind::kContent, held_.size(), parts);
  }
}

bool AnswerParser::advance(std::vector<AnswerPart>& parts) {
  switch (state_) {
    case State::kStart:
      return start();
    case State::kReasoning:
      return reasoning(parts);
    case State::kContent:
      return content(parts);
    case State::kCall:
      return call(parts);
    case State::kAfterCall:
      return after_call();
  }
  return false;
}

// Before any content: reasoning may come, or a call whose marker is not part of the text.
bool AnswerParser::start() {
  const size_t space = leading_space(held_);
  const std::string_view rest = std::string_view(held_).substr(space);
  if (may_reason_ && may_become(rest, kReasoningBegin)) return false;
  if (may_reason_ && rest.starts_with(kReasoningBegin)) {
    held_.erase(0, space + kReasoningBegin.size());
    state_ = State::kReasoning;
    trim_ = true;
    return true;
  }
  if (may_call() && may_become(rest, syntax_.tools->begin)) return false;
  if (!rest.empty()) may_reason_ = false;
  if (may_call() &&
      (rest.starts_with('{') || (rest.starts_with('[') && !rest.starts_with(syntax_.tools->begin))))
    return open_call(space);
  state_ = State::kContent;
  return true;
}

bool AnswerParser::reasoning(std::vector<AnswerPart>& parts) {
  const size_t end = held_.find(kReasoningEnd);
  const bool ended = end != std::string::npos;
  const std::string_view text =
      std::string_view(held_).substr(0, ended ? end : held_.size() - begun_at_end(held_, kReasoningEnd));
  const size_t bytes = without_trailing_space(text);
  emit_text(AnswerPart::Kind::kReasoning, bytes, parts);
  if (!ended) return false;
  held_.erase(0, end - bytes + kReasoningEnd.size());
  state_ = State::kStart;
  may_reason_ = false;
  trim_ = true;
  return true;
}

bool AnswerParser::content(std::vector<AnswerPart>& parts) {
  if (!may_call()) {
    emit_text(AnswerPart::Kind::kContent, held_.size(), parts);
    return false;
  }
  const std::string_view marker = syntax_.tools->begin;
  const size_t at = held_.find(marker);
  const bool found = at != std::string::npos;
  const std::string_view text =
      std::string_view(held_).substr(0, found ? at : held_.size() - begun_at_end(held_, marker));
  const size_t bytes = without_trailing_space(text);
  emit_text(AnswerPart::Kind::kContent, bytes, parts);
  return found && open_call(at - bytes + marker.size());
}

bool AnswerParser::open_call(size_t before) {
  reader_.emplace(syntax_.functions);
  scanned_ = before;
  calls_before_ = n_calls_;
  state_ = State::kCall;
  return true;
}

bool AnswerParser::call(std::vector<AnswerPart>& parts) {
  while (scanned_ < held_.size()) {
    const CallReader::State state = reader_->next(held_[scanned_++]);
    const bool too_many = !syntax_.parallel_calls && reader_->calls().size() > 1;
    if (state == CallReader::State::kBroken || too_many) return call_failed(parts);
    if (state == CallReader::State::kMore) continue;
    emit_calls(parts);
    held_.erase(0, scanned_);
    state_ = State::kAfterCall;
    trim_ = true;
    return true;
  }
  if (syntax_.only_calls) emit_calls(parts);
  return false;
}

// The byte that is wrong may begin something else. What of a call has been sent cannot be taken back.
bool AnswerParser::call_failed(std::vector<AnswerPart>& parts) {
  if (syntax_.only_calls) emit_calls(parts);
  scanned_--;
  if (n_calls_ > calls_before_) {
    held_.erase(0, scanned_);
  } else {
    emit_text(AnswerPart::Kind::kContent, scanned_, parts);
  }
  state_ = State::kContent;
  return true;
}

bool AnswerParser::after_call() {
  const size_t space = leading_space(held_);
  const std::string_view rest = std::string_view(held_).substr(space), end = syntax_.tools->end;
  if (rest.empty() || may_become(rest, end)) return false;
  const bool separator = !syntax_.tools->array && syntax_.tools->separator.starts_with(rest[0]);
  held_.erase(0, space + (!end.empty() && rest.starts_with(end) ? end.size() : separator ? 1 : 0));
  state_ = State::kStart;
  return true;
}

// Moves the front of held_ into a part.
void AnswerParser::emit_text(AnswerPart::Kind kind, size_t bytes, std::vector<AnswerPart>& parts) {
  std::string text = held_.substr(0, bytes);
  held_.erase(0, bytes);
  if (trim_) text.erase(0, leading_space(text));
  if (text.empty()) return;
  trim_ = false;
  parts.push_back({.kind = kind, .text = std::move(text), .call = 0});
}

void AnswerParser::emit_calls(std::vector<AnswerPart>& parts) {
  int32_t index = calls_before_;
  for (const ToolCall& call : reader_->calls()) {
    if (call.name.empty() || call.arguments.empty()) return;
    if (index == n_calls_) {
      parts.push_back({.kind = AnswerPart::Kind::kCallBegin, .text = call.name, .call = index});
      n_calls_++;
      sent_arguments_ = 0;
    }
    if (index == n_calls_ - 1 && call.arguments.size() > sent_arguments_) {
      parts.push_back({.kind = AnswerPart::Kind::kCallArguments,
                       .text = call.arguments.substr(sent_arguments_),
                       .call = index});
      sent_arguments_ = call.arguments.size();
    }
    index++;
  }
}

AnswerParts parse_answer(const AnswerSyntax& syntax, bool begins_in_reasoning, std::string_view text) {
  std::vector<AnswerPart> parts;
  AnswerParser parser(syntax, begins_in_reasoning);
  parser.feed(text, parts);
  parser.finish(parts);
  AnswerParts whole;
  for (AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kReasoning:
        whole.reasoning += part.text;
        break;
      case AnswerPart::Kind::kContent:
        whole.content += part.text;
        break;
      case AnswerPart::Kind::kCallBegin:
        whole.calls.push_back({.name = std::move(part.text), .arguments = {}});
        break;
      case AnswerPart::Kind::kCallArguments:
        whole.calls.back().arguments += part.text;
        break;
    }
  }
  return whole;
}

}  // namespace gapless
