#include "server/tool_use.h"

#include <algorithm>

#include "engine/json_shape.h"
#include "server/json_writer.h"
#include "server/tool_grammar.h"

namespace gapless {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

void check_sizes(FieldReader& fields, const json& tools, std::string_view text) {
  if (!tools.is_array()) return fields.fail("tools", "tools must be an array, got " + describe_json(tools));
  if (tools.size() > kMaxTools)
    return fields.fail("tools",
                       fmt::format("tools has {} entries, at most {} are allowed", tools.size(), kMaxTools));
  if (const Status status = check_members(shape_of_json(text), "tools"); !status.is_ok())
    fields.fail("tools", status.message());
}

// Keys in the client's order: a schema's is the order of the arguments. `name`: how messages call the
// function.
void read_function(FieldReader& fields, const ordered_json& tool, const std::string& name, ToolUse& use) {
  const auto fail = [&](const std::string& what) { fields.fail("tools", name + what); };
  if (!tool.is_object()) return fail(" must be an object");
  const auto type = tool.find("type");
  if (type == tool.end() || *type != "function") return fail(".type must be \"function\"");
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return fail(".function must be an object");
  const auto title = function->find("name");
  if (title == function->end() || !title->is_string() ||
      !is_function_name(title->get_ref<const std::string&>()))
    return fail(fmt::format(".function.name must be a string of 1 to {} letters, digits, '_', '-' and '.'",
                            kMaxFunctionName));
  FunctionTool out{.name = title->get<std::string>(), .parameters = {}};
  const bool twice = std::any_of(use.functions.begin(), use.functions.end(),
                                 [&](const FunctionTool& other) { return other.name == out.name; });
  if (twice) return fail(fmt::format(".function.name is \"{}\", as that of another tool", out.name));
  const auto description = function->find("description");
  if (description != function->end() && !description->is_string() && !description->is_null())
    return fail(".function.description must be a string");
  const auto parameters = function->find("parameters");
  if (parameters != function->end() && !parameters->is_null()) {
    if (!parameters->is_object()) return fail(".function.parameters must be a JSON schema, an object");
    if (parameters->contains("type") && (*parameters)["type"] != "object")
      return fail(".function.parameters.type must be \"object\"");
    out.parameters = parameters->dump();
  }
  use.functions.push_back(std::move(out));
}

void read_named_choice(FieldReader& fields, const json& choice, ToolUse& use) {
  FieldReader inner(choice, "tool_choice");
  std::string type;
  inner.string("type", type);
  const json* function = inner.find("function");
  if (type == "function" && function && function->is_object())
    FieldReader(*function, "tool_choice.function").string("name", use.only);
  if (inner.failed()) return fields.fail("tool_choice", inner.status().message());
  if (use.only.empty())
    return fields.fail(
        "tool_choice",
        R"(tool_choice must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}})");
  use.choice = ToolUse::Choice::kRequired;
  const bool known = std::any_of(use.functions.begin(), use.functions.end(),
                                 [&](const FunctionTool& function) { return function.name == use.only; });
  if (!known)
    fields.fail("tool_choice", fmt::format("tool_choice names \"{}\", which is not among the tools",
                                           printable(use.only, 60)));
}

void read_choice(FieldReader& fields, ToolUse& use) {
  const json* choice = fields.find("tool_choice");
  if (!choice || fields.failed()) return;
  if (choice->is_object()) return read_named_choice(fields, *choice, use);
  std::string mode;
  fields.string("tool_choice", mode);
  if (mode == "none") use.choice = ToolUse::Choice::kNone;
  if (mode == "required") use.choice = ToolUse::Choice::kRequired;
  if (mode != "none" && mode != "auto" && mode != "required")
    fields.fail("tool_choice",
                fmt::format(R"(tool_choice must be "none", "auto", "required" or a function, got "{}")",
                            printable(mode, 40)));
  if (mode == "required" && use.functions.empty())
    fields.fail("tool_choice", R"(tool_choice is "required", and there are no tools)");
}

}  // namespace

bool is_function_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxFunctionName && std::all_of(name.begin(), name.end(), allowed);
}

ToolUse read_tools(FieldReader& fields, const JsonBody& body) {
  ToolUse use;
  const json* tools = fields.find("tools");
  const std::string text = tools ? body.raw("tools") : "";
  if (tools) check_sizes(fields, *tools, text);
  if (tools && !fields.failed()) {
    const ordered_json ordered = ordered_json::parse(text);
    for (size_t i = 0; i < ordered.size() && !fields.failed(); i++)
      read_function(fields, ordered[i], fmt::format("tools[{}]", i), use);
  }
  read_choice(fields, use);
  fields.boolean("parallel_tool_calls", use.parallel);
  return use;
}

Result<AnswerSyntax> apply_tools(const ToolUse& use, const ModelFacts& model, GenerateRequest& request) {
  AnswerSyntax syntax;
  if (use.choice == ToolUse::Choice::kNone || use.functions.empty()) return syntax;
  syntax.tools = model.tool_format;
  for (const FunctionTool& function : use.functions) {
    if (use.only.empty() || function.name == use.only) syntax.functions.push_back(function.name);
  }
  syntax.only_calls = use.choice == ToolUse::Choice::kRequired;
  syntax.parallel_calls = use.parallel && use.only.empty();
  if (!syntax.only_calls && !request.grammar) return syntax;
  const bool schema = request.grammar && request.grammar->kind == GrammarSpec::Kind::kJsonSchema;
  if (request.grammar && (syntax.only_calls || !schema))
    return Status::invalid("{} cannot be combined with {}{}",
                           syntax.only_calls ? "a tool_choice that forces a call" : "tools",
                           request.grammar_field, syntax.only_calls ? "" : " unless that is a JSON schema")
        .with_param("tool_choice");
  request.grammar_field = "tools";
  request.grammar = calls_grammar(use, *model.tool_format, request.grammar ? request.grammar->text : "");
  return syntax;
}

}  // namespace gapless
