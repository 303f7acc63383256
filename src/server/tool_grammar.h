// The language of forced calls of functions.
#pragma once

#include <string>

#include "engine/tool_format.h"
#include "sampling/grammar.h"
#include "server/tool_use.h"

namespace gapless {

// Answers that call one of the functions, with arguments that match its schema, or several of them if
// use.parallel; or, if or_schema is not empty, a JSON text that matches that schema.
GrammarSpec calls_grammar(const ToolUse& use, const ToolFormat& format, const std::string& or_schema);

}  // namespace gapless
