#include "server/tool_grammar.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gapless {

namespace {

using nlohmann::ordered_json;

// A terminal of exactly this text.
std::string literal(std::string_view text) {
  return ordered_json(text).dump();
}

bool is_combined(const ordered_json& schema) {
  return schema.contains("$ref") || schema.contains("allOf") || schema.contains("anyOf") ||
         schema.contains("oneOf") || schema.contains("patternProperties");
}

// A model that may would go on with arguments that nobody described: where the schema lists them and does not
// say whether there are more, there are none. A function without a schema has none either.
std::string arguments_schema(const FunctionTool& function) {
  ordered_json schema = function.parameters.empty() ? ordered_json{{"properties", ordered_json::object()}}
                                                    : ordered_json::parse(function.parameters);
  schema["type"] = "object";
  if (schema.contains("properties") && !schema.contains("additionalProperties") && !is_combined(schema))
    schema["additionalProperties"] = false;
  return schema.dump();
}

// {"name": "f", "arguments": {...}}, one rule for each function that may be called.
std::string call_rules(const ToolUse& use, const ToolFormat& format) {
  std::string names, rules;
  for (size_t i = 0; i < use.functions.size(); i++) {
    const FunctionTool& function = use.functions[i];
    if (!use.only.empty() && function.name != use.only) continue;
    names += fmt::format("{}call_{}", names.empty() ? "" : " | ", i);
    const std::string head = fmt::format(R"({{"name": "{}", "{}": )", function.name, format.arguments);
    rules += fmt::format("call_{}: {} arguments_{} \"}}\"\narguments_{}: %json {}\n", i, literal(head), i, i,
                         arguments_schema(function));
  }
  return fmt::format("call: {}\n{}", names, rules);
}

}  // namespace

GrammarSpec calls_grammar(const ToolUse& use, const ToolFormat& format, const std::string& or_schema) {
  const bool many = use.parallel && use.only.empty();
  const std::string more =
      many ? fmt::format(" ({} one){{0,{}}}", literal(format.separator), kMaxForcedCalls - 1) : "";
  std::string text = or_schema.empty() ? "start: calls\n" : "start: calls | text\n";
  text +=
      format.array ? fmt::format("calls: \"[\" one{} \"]\"\n", more) : fmt::format("calls: one{}\n", more);
  if (format.end.empty()) {
    text += "one: call\n";
  } else {
    text += fmt::format("one: {} call {}\n", literal(fmt::format("{}\n", format.begin)),
                        literal(fmt::format("\n{}", format.end)));
  }
  text += call_rules(use, format);
  if (!or_schema.empty()) text += fmt::format("text: %json {}\n", or_schema);
  return {.kind = GrammarSpec::Kind::kLark, .text = std::move(text)};
}

}  // namespace gapless
