#include "engine/tool_prompt.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "engine/tool_format.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

// {"name": "f", "arguments": {...}} between the markers.
std::string call_text(const Json& call) {
  const ToolFormat& format = tool_formats().front();
  const Json& function = call["function"];
  const Json arguments = function.value("arguments", Json::object());
  return fmt::format("{}\n{{\"name\": {}, \"{}\": {}}}\n{}", format.begin, function["name"].dump(),
                     format.arguments, arguments.dump(), format.end);
}

void append_paragraph(std::string& text, const std::string& more) {
  if (!text.empty()) text += "\n\n";
  text += more;
}

std::string result_text(const Json& message) {
  return fmt::format("<tool_response>\n{}\n</tool_response>",
                     message["content"].get_ref<const std::string&>());
}

// FNV-1a: the same id gives the same digits in the call and in its result.
void shorten_id(Json& owner, const char* member) {
  if (!owner.contains(member) || !owner[member].is_string()) return;
  uint64_t hash = 14695981039346656037u;
  for (const char c : owner[member].get_ref<const std::string&>())
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  owner[member] = fmt::format("{:09}", hash % 1'000'000'000);
}

}  // namespace

void describe_tools(const Json& tools, Json& messages) {
  const ToolFormat& format = tool_formats().front();
  std::string text = "You can call these functions, each described by a JSON object:\n<tools>\n";
  for (const Json& tool : tools) text += tool.dump() + "\n";
  text += fmt::format(
      "</tools>\nTo call a function, answer with its name and arguments as a JSON object between tags:\n"
      "{}\n{{\"name\": <name of the function>, \"{}\": <object of arguments>}}\n{}\n"
      "You get what it returns between <tool_response> tags.",
      format.begin, format.arguments, format.end);
  if (messages.front()["role"] != "system") {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", std::move(text)}});
  } else {
    append_paragraph(messages.front()["content"].get_ref<std::string&>(), text);
  }
}

void shorten_call_ids(Json& messages) {
  for (Json& message : messages) {
    shorten_id(message, "tool_call_id");
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) shorten_id(call, "id");
  }
}

void spell_out_calls(Json& messages) {
  Json told = Json::array();
  bool after_result = false;
  for (Json& message : messages) {
    const bool is_result = message["role"] == "tool" || message["role"] == "function";
    if (is_result && after_result) {
      told.back()["content"].get_ref<std::string&>() += "\n" + result_text(message);
    } else if (is_result) {
      told.push_back(Json{{"role", "user"}, {"content", result_text(message)}});
    } else {
      if (message.contains("tool_calls")) {
        for (const Json& call : message["tool_calls"])
          append_paragraph(message["content"].get_ref<std::string&>(), call_text(call));
        message.erase("tool_calls");
      }
      told.push_back(std::move(message));
    }
    after_result = is_result;
  }
  messages = std::move(told);
}

}  // namespace gapless
