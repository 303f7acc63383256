// Reads the calls of functions that a model wrote as JSON: an object with name and arguments, or an array of
// such objects. Byte by byte; one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/json_scanner.h"

namespace gapless {

struct ToolCall {
  std::string name;
  std::string arguments;  // the JSON object as the model wrote it
};

class CallReader {
 public:
  enum class State { kMore, kEnd, kBroken };

  // functions: the names that may be called; outlives the reader.
  explicit CallReader(const std::vector<std::string>& functions) : functions_(&functions) {}

  // kEnd: this was the last byte, and all of it is valid. kBroken: it is not, or can no longer become, a
  // call.
  State next(char c);
  const std::string& text() const { return text_; }
  // The last one may still grow: it has begun once it has a name and some arguments.
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  enum class Member { kOther, kName, kArguments };
  bool take(JsonScanner::Event event);
  bool begin_value();
  bool end_key();
  bool end_value();
  // The string that ends with the last byte.
  std::string string_from_begin() const;

  const std::vector<std::string>* functions_;
  JsonScanner scanner_;
  std::string text_;
  std::vector<ToolCall> calls_;
  int call_depth_ = 0;              // inside a call's own object: 1, or 2 in an array. 0: nothing has come
  Member member_ = Member::kOther;  // of the call: the one that comes or is being read
  size_t begin_ = 0;                // of its key or value
  bool in_arguments_ = false;
};

}  // namespace gapless
