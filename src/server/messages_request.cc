#include "server/messages_request.h"

#include <limits>

#include "server/chat_translation.h"
#include "server/common_fields.h"
#include "server/grammar_fields.h"
#include "server/messages_format.h"

namespace gapless {

using nlohmann::json;

namespace {

// Reads `messages` into turns. One message may become several: results of tools stand by themselves.
class MessageReader {
 public:
  MessageReader(FieldReader& fields, std::vector<ChatTurn>& turns) : fields_(fields), turns_(turns) {}

  void read(const WrittenJson& message, const std::string& where) {
    const json& value = message.value;
    role_ = value.is_object() ? required_string(fields_, "messages", value, where, "role") : "";
    if (role_ != "user" && role_ != "assistant") {
      return fields_.fail("messages", fmt::format("{} must be an object whose role is \"user\" or "
                                                  "\"assistant\"; the system's words go into system",
                                                  where));
    }
    const auto content = value.find("content");
    if (content == value.end()) return fields_.fail("messages", where + ".content is missing");
    open_ = false;
    if (!content->is_array()) {
      turn().text = text_content(fields_, "messages", *content, where + ".content", {});
      return;
    }
    const std::string text = written_member(message, "content");
    const std::vector<WrittenJson> blocks = written_elements({*content, text});
    for (size_t i = 0; i < blocks.size() && !fields_.failed(); i++)
      read_block(blocks[i], fmt::format("{}.content[{}]", where, i));
    if (blocks.empty()) turn();
  }

 private:
  void read_block(const WrittenJson& block, const std::string& where) {
    const std::string type = type_of(block.value);
    const bool assistant = role_ == "assistant";
    if (type == "text") {
      turn().text += string(block, where, "text");
    } else if (type == "tool_use" && assistant) {
      read_call(block, where);
    } else if (type == "tool_result" && !assistant) {
      read_result(block, where);
    } else if (type == "thinking" && assistant) {
      turn().reasoning += string(block, where, "thinking");
    } else if (type != "redacted_thinking" || !assistant) {
      fields_.fail("messages",
                   fmt::format("{} of the {} has type \"{}\": there are text, tool_use and thinking of the "
                               "assistant, and tool_result of the user",
                               where, role_, printable(type, 40)),
                   "unsupported");
    }
  }

  void read_call(const WrittenJson& block, const std::string& where) {
    ChatTurn::Call call{string(block, where, "id"), string(block, where, "name"), {}};
    if (!block.value.contains("input") || !block.value["input"].is_object())
      return fields_.fail("messages", where + ".input must be an object");
    call.arguments = written_member(block, "input");
    turn().calls.push_back(std::move(call));
  }

  void read_result(const WrittenJson& block, const std::string& where) {
    ChatTurn result{.role = "tool", .text = {}, .call_id = string(block, where, "tool_use_id")};
    const auto content = block.value.find("content");
    if (content != block.value.end() && !content->is_null())
      result.text = text_content(fields_, "messages", *content, where + ".content", {"text"});
    turns_.push_back(std::move(result));
    open_ = false;  // text that follows is a turn of its own
  }

  std::string string(const WrittenJson& block, const std::string& where, const char* member) {
    return required_string(fields_, "messages", block.value, where, member);
  }

  // The one that the blocks of this message go into.
  ChatTurn& turn() {
    if (!open_) turns_.push_back({.role = role_, .text = {}});
    open_ = true;
    return turns_.back();
  }

  FieldReader& fields_;
  std::vector<ChatTurn>& turns_;
  std::string role_;
  bool open_ = false;
};

void write_messages(FieldReader& fields, const JsonBody& body, ChatBodyWriter& chat) {
  std::vector<ChatTurn> turns;
  if (const json* system = fields.find("system"))
    turns.push_back({.role = "system", .text = text_content(fields, "system", *system, "system", {"text"})});
  const json* messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    return fields.fail("messages",
                       "messages must be an array of at least one {\"role\", \"content\"} object");
  const std::string text = body.raw("messages");
  MessageReader reader(fields, turns);
  const std::vector<WrittenJson> elements = written_elements({*messages, text});
  for (size_t i = 0; i < elements.size() && !fields.failed(); i++)
    reader.read(elements[i], fmt::format("messages[{}]", i));
  if (fields.failed()) return;
  chat.messages(turns);
  // The answer goes on with the words that the assistant was given.
  const ChatTurn& last = turns.back();
  if (last.role == "assistant" && last.calls.empty())
    chat.writer().key("continue_final_message").boolean(true);
}

void read_tool(FieldReader& fields, const WrittenJson& tool, const std::string& where, ChatBodyWriter& chat) {
  const std::string type = type_of(tool.value);
  if (!type.empty() && type != "custom")
    return fields.unsupported("tools", fmt::format("{} is one that Anthropic's servers run", where));
  if (!tool.value.is_object() || !tool.value.contains("input_schema") ||
      !tool.value["input_schema"].is_object())
    return fields.fail("tools", where + " must be an object with a name and an input_schema, an object");
  const std::string name = required_string(fields, "tools", tool.value, where, "name");
  const std::string description = optional_string(fields, "tools", tool.value, where, "description");
  if (!fields.failed()) chat.tool(name, description, written_member(tool, "input_schema"));
}

void write_tool_choice(FieldReader& fields, ChatBodyWriter& chat) {
  const json* choice = fields.find("tool_choice");
  if (!choice || fields.failed()) return;
  const std::string type = type_of(*choice);
  if (type == "auto" || type == "none") {
    chat.writer().key("tool_choice").string(type);
  } else if (type == "any") {
    chat.writer().key("tool_choice").string("required");
  } else if (type == "tool") {
    chat.named_tool(required_string(fields, "tool_choice", *choice, "tool_choice", "name"));
  } else {
    return fields.fail("tool_choice", "tool_choice must be an object whose type is auto, any, tool or none");
  }
  bool one_at_a_time = false;
  FieldReader inner(*choice, "tool_choice");
  inner.boolean("disable_parallel_tool_use", one_at_a_time);
  if (inner.failed()) fields.fail(inner.status());
  if (one_at_a_time) chat.writer().key("parallel_tool_calls").boolean(false);
}

// thinking: the template's own switch, where it has one.
void write_thinking(FieldReader& fields, ChatBodyWriter& chat) {
  const json* thinking = fields.find("thinking");
  if (!thinking || fields.failed()) return;
  const std::string type = type_of(*thinking);
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return fields.fail("thinking", "thinking must be an object whose type is enabled, disabled or adaptive");
  if (fields.find("chat_template_kwargs")) return;
  chat.writer().key("chat_template_kwargs").begin_object();
  chat.writer().key("enable_thinking").boolean(type != "disabled").end_object();
}

void write_output_config(FieldReader& fields, const JsonBody& body, ChatBodyWriter& chat) {
  const json* config = fields.find("output_config");
  if (!config || fields.failed()) return;
  if (!config->is_object())
    return fields.fail("output_config", "output_config must be an object, got " + describe_json(*config));
  const auto format = config->find("format");
  if (format == config->end() || format->is_null()) return;
  if (type_of(*format) != "json_schema" || !format->contains("schema") || !(*format)["schema"].is_object())
    return fields.fail("output_config",
                       "output_config.format must be {\"type\": \"json_schema\", \"schema\": ...}");
  const std::string text = body.raw("output_config");
  const std::string format_text = written_member({*config, text}, "format");
  chat.json_schema(written_member({*format, format_text}, "schema"));
}

// The chat request that asks the same.
Result<std::string> translate(const JsonBody& body, bool counting) {
  FieldReader fields(body.root());
  for (const char* field : {"container", "mcp_servers"}) {
    if (fields.find(field)) fields.unsupported(field, "it is one of Anthropic's servers' own");
  }
  refuse_grammar_fields(fields, "output_config.format");
  if (fields.find("output_format")) fields.unsupported("output_format", "use output_config.format");
  ChatBodyWriter chat;
  chat.pass_on(body);
  std::optional<int32_t> max_tokens;
  fields.integer("max_tokens", 1, std::numeric_limits<int32_t>::max(), max_tokens);
  if (!max_tokens && !counting) fields.fail("max_tokens", "max_tokens is missing: the longest answer wanted");
  if (max_tokens) chat.writer().key("max_tokens").integer(*max_tokens);
  std::vector<std::string> stop;
  if (const json* list = fields.find("stop_sequences"); list && !list->is_array())
    fields.fail("stop_sequences", "stop_sequences must be an array of strings, got " + describe_json(*list));
  read_stop(fields, "stop_sequences", stop);
  chat.writer().key("stop").begin_array();
  for (const std::string& text : stop) chat.writer().string(text);
  chat.writer().end_array();
  write_messages(fields, body, chat);
  chat.tools(fields, body, read_tool);
  write_tool_choice(fields, chat);
  write_thinking(fields, chat);
  write_output_config(fields, body, chat);
  RETURN_IF_ERROR(fields.status());
  return chat.end();
}

}  // namespace

Result<GenerationPlan> parse_messages_request(const JsonBody& body, const ModelFacts& model,
                                              const RequestLimits& limits) {
  ASSIGN_OR_RETURN(std::string chat, translate(body, /*counting=*/false));
  ASSIGN_OR_RETURN(GenerationPlan plan, parse_translated(std::move(chat), model, limits, "output_config"));
  plan.id_prefix = "msg_";
  plan.prompt_field = "messages";
  plan.format = std::make_unique<MessagesFormat>(std::move(plan.syntax));
  return plan;
}

Result<GenerationPlan> parse_count_tokens(const JsonBody& body, const ModelFacts& model,
                                          const RequestLimits& limits) {
  ASSIGN_OR_RETURN(std::string chat, translate(body, /*counting=*/true));
  return parse_translated(std::move(chat), model, limits, "output_config");
}

}  // namespace gapless
