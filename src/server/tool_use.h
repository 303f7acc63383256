// The functions that a request lets the model call: what its answer may hold, and the grammar that makes it
// call one. Shared by every endpoint that takes tools.
#pragma once

#include <string>
#include <vector>

#include "engine/engine_api.h"
#include "server/answer_parser.h"
#include "server/field_reader.h"
#include "server/json_body.h"

namespace gapless {

inline constexpr size_t kMaxTools = 1024;
inline constexpr size_t kMaxFunctionName = 128;
inline constexpr int kMaxForcedCalls = 16;  // a small model that must call goes on calling

struct FunctionTool {
  std::string name;
  std::string parameters;  // the JSON schema of its arguments, an object's; empty: it takes none
};

struct ToolUse {
  enum class Choice { kNone, kAuto, kRequired };
  std::vector<FunctionTool> functions;
  Choice choice = Choice::kAuto;
  std::string only;      // kRequired: the one function that may be called; empty: any
  bool parallel = true;  // several calls in one answer
};

// Letters, digits, '_', '-' and '.', up to kMaxFunctionName: a name goes into grammars and templates.
bool is_function_name(std::string_view name);

// `tools`, `tool_choice` and `parallel_tool_calls` as chat completions have them.
ToolUse read_tools(FieldReader& fields, const JsonBody& body);

// What the answer may hold. Sets request.grammar if a call must come, or if it may and the answer is limited
// to a JSON schema otherwise. Errors: the field tool_choice.
Result<AnswerSyntax> apply_tools(const ToolUse& use, const ModelFacts& model, GenerateRequest& request);

}  // namespace gapless
