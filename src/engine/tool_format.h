// How models write calls of functions in their answers. A template that knows tools says it by its markers;
// one that does not is given the default's (tool_prompt.h). Constants: any thread.
#pragma once

#include <span>
#include <string_view>

namespace gapless {

// A call is a JSON object {"name": ..., "arguments": {...}}. Where a vocabulary has the markers as control
// tokens they are not part of an answer's text: an answer may begin with the JSON itself.
struct ToolFormat {
  std::string_view name;       // as docs/tools.md calls it
  std::string_view evidence;   // what only templates of this format contain
  std::string_view begin;      // stands before a call, or before the array of calls
  std::string_view end;        // stands behind it; may be empty
  std::string_view arguments;  // the member that templates show for the arguments
  std::string_view separator;  // between two calls
  bool array;                  // all calls of an answer are the elements of one JSON array
};

inline constexpr std::string_view kReasoningBegin = "<think>", kReasoningEnd = "</think>";

std::span<const ToolFormat> tool_formats();  // the first is the default
// The one that a template's source shows its model; the default if it shows none.
const ToolFormat& tool_format_of(std::string_view template_source);

}  // namespace gapless
