#include "engine/chat_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/json_shape.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 100;  // of nested arrays and objects; the template side's own limit is 128

template <class... Args>
Status invalid_message(fmt::format_string<Args...> format, Args&&... args) {
  return Status::invalid(format, std::forward<Args>(args)...).with_param("messages");
}

// One part of a content array: its text.
Result<std::string> part_text(const Json& part, const std::string& where) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    return invalid_message("{} must be an object with a type", where);
  }
  const auto type = part["type"].get<std::string>();
  const char* field = type == "refusal" ? "refusal" : "text";
  if (type != "text" && type != "refusal") {
    // The type is the client's own text and may be anything: only a plain word is repeated.
    const bool plain = type.size() <= 32 && std::all_of(type.begin(), type.end(), [](char c) {
                         return c == '_' || (c >= 'a' && c <= 'z');
                       });
    return invalid_message("{}: content of type '{}' is not supported, this model reads text only", where,
                           plain ? type : "?");
  }
  if (!part.contains(field) || !part[field].is_string())
    return invalid_message("{}.{} must be a string", where, field);
  return part[field].get<std::string>();
}

Result<std::string> content_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return invalid_message("{} must be a string or an array of parts", where);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    ASSIGN_OR_RETURN(std::string part, part_text(content[i], fmt::format("{}[{}]", where, i)));
    text += part;
  }
  return text;
}

// Clients send arguments as a JSON text; templates want the object. What is no object stays as it is.
Status normalise_tool_calls(Json& calls, const std::string& where) {
  if (!calls.is_array()) return invalid_message("{} must be an array", where);
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool has_name = calls[i].is_object() && calls[i].contains("function") &&
                          calls[i]["function"].is_object() && calls[i]["function"].contains("name") &&
                          calls[i]["function"]["name"].is_string();
    if (!has_name) return invalid_message("{}[{}].function.name must be a string", where, i);
    Json& function = calls[i]["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    const JsonShape shape = shape_of_json(text);
    if (shape.depth > kMaxDepth / 2)
      return invalid_message("{}[{}].function.arguments is nested too deeply", where, i);
    if (Status status = check_members(shape, fmt::format("{}[{}].function.arguments", where, i));
        !status.is_ok())
      return std::move(status).with_param("messages");
    Json arguments = Json::parse(text, nullptr, false);
    if (arguments.is_object()) function["arguments"] = std::move(arguments);
  }
  return Status::ok();
}

Status normalise_role(Json& message, const std::string& where, bool template_knows_developer) {
  static constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  const bool is_string = message.contains("role") && message["role"].is_string();
  const bool known = is_string && std::any_of(std::begin(kRoles), std::end(kRoles),
                                              [&](const char* role) { return message["role"] == role; });
  if (!known)
    return invalid_message("{}.role must be one of system, developer, user, assistant, tool, function",
                           where);
  if (message["role"] == "developer" && !template_knows_developer) message["role"] = "system";
  return Status::ok();
}

Status normalise_message(Json& message, const std::string& where, bool template_knows_developer) {
  if (!message.is_object()) return invalid_message("{} must be an object", where);
  RETURN_IF_ERROR(normalise_role(message, where, template_knows_developer));
  for (auto field = message.begin(); field != message.end();) {
    field = field->is_null() ? message.erase(field) : std::next(field);
  }
  if (message.contains("tool_calls"))
    RETURN_IF_ERROR(normalise_tool_calls(message["tool_calls"], where + ".tool_calls"));
  const bool has_call =
      (message.contains("tool_calls") && !message["tool_calls"].empty()) || message.contains("function_call");
  if (!message.contains("content")) {
    if (message["role"] != "assistant" || !has_call) return invalid_message("{}.content is missing", where);
    message["content"] = "";
    return Status::ok();
  }
  ASSIGN_OR_RETURN(message["content"], content_text(message["content"], where + ".content"));
  return Status::ok();
}

}  // namespace

Status check_json(std::string_view text, bool want_array, const char* param) {
  const JsonShape shape = shape_of_json(text);
  if (shape.depth > kMaxDepth)
    return Status::invalid("{} is nested deeper than {} levels", param, kMaxDepth).with_param(param);
  if (Status status = check_members(shape, param); !status.is_ok())
    return std::move(status).with_param(param);
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool right =
      first != std::string_view::npos && text[first] == (want_array ? '[' : '{') && Json::accept(text);
  if (!right)
    return Status::invalid("{} must be {}", param, want_array ? "an array" : "an object").with_param(param);
  return Status::ok();
}

Result<Json> normalise_messages(std::string_view text, bool template_knows_developer) {
  RETURN_IF_ERROR(check_json(text, true, "messages"));
  Json messages = Json::parse(text);
  if (messages.empty()) return invalid_message("messages must hold at least one message");
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(normalise_message(messages[i], fmt::format("messages[{}]", i), template_knows_developer));
  }
  return messages;
}

}  // namespace gapless
