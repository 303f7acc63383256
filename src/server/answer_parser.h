// Takes an answer's text apart while it grows: what the model thought, what it says, which functions it
// calls. However the text is cut into pieces, the parts add up to the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tool_format.h"
#include "server/call_reader.h"

namespace gapless {

// What an answer may hold beside plain content. The default: nothing.
struct AnswerSyntax {
  const ToolFormat* tools = nullptr;   // nullptr: no calls are looked for
  std::vector<std::string> functions;  // whose calls count
  bool only_calls =
      false;  // a grammar allows nothing else: a call counts from its first byte, not from its last
  bool parallel_calls = true;  // false: what follows the first call is content, even another call
  bool reasoning = false;      // text between <think> and </think> at the beginning
};

struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kContent, kCallBegin, kCallArguments } kind = Kind::kContent;
  std::string text;  // kCallBegin: the function's name
  int32_t call = 0;  // which one, counted from 0
};

// An answer that has ended.
struct AnswerParts {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
};

// White space around reasoning and calls is dropped, and so are the markers of calls that count; every other
// byte is in some part. One thread at a time.
class AnswerParser {
 public:
  // begins_in_reasoning: the prompt ended with <think>. The syntax outlives the parser.
  AnswerParser(const AnswerSyntax& syntax, bool begins_in_reasoning);

  // Appends the parts that are certain by now. Adjacent parts of one kind may be pieces of one text.
  void feed(std::string_view text, std::vector<AnswerPart>& parts);
  // The answer has ended: what was held back is what it looks like.
  void finish(std::vector<AnswerPart>& parts);
  // Calls that have begun.
  int32_t n_calls() const { return n_calls_; }

 private:
  enum class State { kStart, kReasoning, kContent, kCall, kAfterCall };
  // Consumes what it can of held_. False: only more text can tell how it goes on.
  bool advance(std::vector<AnswerPart>& parts);
  bool start();
  bool reasoning(std::vector<AnswerPart>& parts);
  bool content(std::vector<AnswerPart>& parts);
  bool call(std::vector<AnswerPart>& parts);
  bool after_call();
  bool call_failed(std::vector<AnswerPart>& parts);

  // A call may follow that has `before` bytes of held_ before its JSON.
  bool open_call(size_t before);
  void emit_text(AnswerPart::Kind kind, size_t bytes, std::vector<AnswerPart>& parts);
  void emit_calls(std::vector<AnswerPart>& parts);
  bool may_call() const { return syntax_.tools && (syntax_.parallel_calls || n_calls_ == 0); }

  const AnswerSyntax& syntax_;
  State state_;
  std::string held_;                        // in no part yet
  bool trim_ = false;                       // white space that comes next is dropped
  bool may_reason_;                         // nothing but white space has come
  std::optional<CallReader> reader_;        // kCall
  size_t scanned_ = 0;                      // kCall: up to where the reader has held_
  int32_t n_calls_ = 0, calls_before_ = 0;  // that have begun; before the reader's
  size_t sent_arguments_ = 0;               // of the last call
};

AnswerParts parse_answer(const AnswerSyntax& syntax, bool begins_in_reasoning, std::string_view text);

}  // namespace gapless
