#include "engine/tool_format.h"

namespace gapless {
namespace {

constexpr ToolFormat kFormats[] = {
    {.name = "hermes",
     .evidence = "<tool_call>",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .arguments = "arguments",
     .separator = "\n",
     .array = false},
    {.name = "llama3",
     .evidence = "<|python_tag|>",
     .begin = "<|python_tag|>",
     .end = "",
     .arguments = "parameters",
     .separator = "; ",
     .array = false},
    // The templates of the 3.2 models show the object and not the token.
    {.name = "llama3",
     .evidence = "\"parameters\": dictionary of argument name",
     .begin = "<|python_tag|>",
     .end = "",
     .arguments = "parameters",
     .separator = "; ",
     .array = false},
    {.name = "mistral",
     .evidence = "[TOOL_CALLS]",
     .begin = "[TOOL_CALLS]",
     .end = "",
     .arguments = "arguments",
     .separator = ", ",
     .array = true},
};

}  // namespace

std::span<const ToolFormat> tool_formats() {
  return kFormats;
}

const ToolFormat& tool_format_of(std::string_view template_source) {
  for (const ToolFormat& format : kFormats) {
    if (template_source.find(format.evidence) != std::string_view::npos) return format;
  }
  return kFormats[0];
}

}  // namespace gapless
