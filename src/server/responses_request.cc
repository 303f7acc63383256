#include "server/responses_request.h"

#include <algorithm>
#include <limits>

#include "server/chat_translation.h"
#include "server/grammar_fields.h"
#include "server/responses_format.h"

namespace gapless {

using nlohmann::json;

namespace {

// Reads `input` into turns. Calls join the assistant's turn before them.
class ItemReader {
 public:
  ItemReader(FieldReader& fields, std::vector<ChatTurn>& turns) : fields_(fields), turns_(turns) {}

  void read(const WrittenJson& item, const std::string& where) {
    if (!item.value.is_object()) return fields_.fail("input", where + " must be an object");
    const std::string type = type_of(item.value);
    if (type.empty() || type == "message") {
      read_message(item, where);
    } else if (type == "function_call") {
      read_call(item, where);
    } else if (type == "function_call_output") {
      turns_.push_back(
          {.role = "tool", .text = text(item, where, "output"), .call_id = string(item, where, "call_id")});
    } else if (type == "reasoning") {
      if (item.value.contains("content") && !item.value["content"].is_null())
        reasoning_ += text(item, where, "content");
    } else {
      fields_.fail("input",
                   fmt::format("{} has type \"{}\": there are message, function_call, "
                               "function_call_output and reasoning",
                               where, printable(type, 40)),
                   "unsupported");
    }
  }

 private:
  void read_message(const WrittenJson& item, const std::string& where) {
    const std::string role = string(item, where, "role");
    add_turn(role).text = text(item, where, "content");
  }

  void read_call(const WrittenJson& item, const std::string& where) {
    ChatTurn::Call call{string(item, where, "call_id"), string(item, where, "name"), {}};
    string(item, where, "arguments");
    if (fields_.failed()) return;
    call.arguments = written_member(item, "arguments");
    const bool joins = !turns_.empty() && turns_.back().role == "assistant" && reasoning_.empty();
    (joins ? turns_.back() : add_turn("assistant")).calls.push_back(std::move(call));
  }

  ChatTurn& add_turn(const std::string& role) {
    turns_.push_back({.role = role, .text = {}});
    if (role == "assistant") turns_.back().reasoning = std::exchange(reasoning_, {});
    return turns_.back();
  }

  std::string string(const WrittenJson& item, const std::string& where, const char* member) {
    return required_string(fields_, "input", item.value, where, member);
  }

  std::string text(const WrittenJson& item, const std::string& where, const char* member) {
    const auto it = item.value.find(member);
    if (it == item.value.end()) {
      fields_.fail("input", fmt::format("{}.{} is missing", where, member));
      return {};
    }
    return text_content(fields_, "input", *it, where + "." + member,
                        {"input_text", "output_text", "text", "refusal", "reasoning_text"});
  }

  FieldReader& fields_;
  std::vector<ChatTurn>& turns_;
  std::string reasoning_;  // belongs to the assistant's turn that follows
};

void write_input(FieldReader& fields, const JsonBody& body, ChatBodyWriter& chat) {
  std::vector<ChatTurn> turns;
  std::string instructions;
  fields.string("instructions", instructions);
  if (!instructions.empty()) turns.push_back({.role = "system", .text = std::move(instructions)});
  const json* input = fields.find("input");
  if (input && input->is_string()) {
    turns.push_back({.role = "user", .text = input->get<std::string>()});
  } else if (input && input->is_array() && !input->empty()) {
    const std::string text = body.raw("input");
    ItemReader reader(fields, turns);
    const std::vector<WrittenJson> items = written_elements({*input, text});
    for (size_t i = 0; i < items.size() && !fields.failed(); i++)
      reader.read(items[i], fmt::format("input[{}]", i));
  } else {
    fields.fail("input", "input must be a string or an array of items, which is not empty");
  }
  chat.messages(turns);
}

void read_tool(FieldReader& fields, const WrittenJson& tool, const std::string& where, ChatBodyWriter& chat) {
  if (type_of(tool.value) != "function") {
    return fields.unsupported("tools",
                              where + " is not of type \"function\", and this server runs no tools itself");
  }
  const std::string name = required_string(fields, "tools", tool.value, where, "name");
  const std::string description = optional_string(fields, "tools", tool.value, where, "description");
  const bool open = !tool.value.contains("parameters") || tool.value["parameters"].is_null();
  const std::string parameters = open ? "" : written_member(tool, "parameters");
  chat.tool(name, description, parameters);
}

void write_tool_choice(FieldReader& fields, const JsonBody& body, ChatBodyWriter& chat) {
  const json* choice = fields.find("tool_choice");
  if (!choice || fields.failed()) return;
  if (choice->is_string()) {
    chat.writer().key("tool_choice").raw(body.raw("tool_choice"));
  } else if (type_of(*choice) == "function") {
    chat.named_tool(required_string(fields, "tool_choice", *choice, "tool_choice", "name"));
  } else {
    fields.fail("tool_choice",
                "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"name\"}");
  }
}

// text.format: what chat calls response_format.
void write_format(FieldReader& fields, const JsonBody& body, ChatBodyWriter& chat) {
  const json* text = fields.find("text");
  if (!text || fields.failed()) return;
  if (!text->is_object()) return fields.fail("text", "text must be an object, got " + describe_json(*text));
  const auto format = text->find("format");
  if (format == text->end() || format->is_null()) return;
  const std::string type = type_of(*format);
  if (type == "json_object") {
    chat.writer().key("response_format").begin_object().key("type").string(type).end_object();
  } else if (type == "json_schema" && format->contains("schema") && (*format)["schema"].is_object()) {
    const std::string written = body.raw("text");
    const std::string format_text = written_member({*text, written}, "format");
    chat.json_schema(written_member({*format, format_text}, "schema"));
  } else if (type != "text") {
    fields.fail("text",
                "text.format must be of type \"text\", \"json_object\", or \"json_schema\" with a schema");
  }
}

// What would be wrong to ignore.
void refuse_unsupported(FieldReader& fields) {
  for (const char* field : {"previous_response_id", "conversation"}) {
    if (fields.find(field))
      fields.unsupported(field, "no response is stored here; send the whole conversation as input");
  }
  refuse_grammar_fields(fields, "text.format");
  if (fields.find("prompt")) fields.unsupported("prompt", "no prompts are stored here");
  bool background = false;
  fields.boolean("background", background);
  if (background) fields.unsupported("background", "no response is stored here");
  int32_t top_logprobs = 0;
  fields.integer("top_logprobs", 0, 20, top_logprobs);
  if (top_logprobs > 0) fields.unsupported("top_logprobs", "use /v1/chat/completions");
}

void check_one_of(FieldReader& fields, const std::string& field, std::initializer_list<const char*> words) {
  std::string word;
  fields.string(field, word);
  if (fields.find(field) && std::ranges::find(words, word) == words.end())
    fields.fail(field, fmt::format("{} must be one of {}", fields.name_of(field), fmt::join(words, ", ")));
}

// What changes nothing here, and must be right all the same.
void check_ignored(FieldReader& fields) {
  check_one_of(fields, "truncation", {"auto", "disabled"});
  if (const json* reasoning = fields.find("reasoning")) {
    if (!reasoning->is_object())
      return fields.fail("reasoning", "reasoning must be an object, got " + describe_json(*reasoning));
    FieldReader inner(*reasoning, "reasoning");
    check_one_of(inner, "effort", {"none", "minimal", "low", "medium", "high", "xhigh"});
    check_one_of(inner, "summary", {"auto", "concise", "detailed"});
    if (inner.failed()) fields.fail(inner.status());
  }
  const json* include = fields.find("include");
  if (!include) return;
  const auto is_text = [](const json& value) { return value.is_string(); };
  if (!include->is_array() || !std::ranges::all_of(*include, is_text))
    return fields.fail("include", "include must be a list of strings");
  if (std::ranges::find(*include, "message.output_text.logprobs") != include->end())
    fields.unsupported("include", "log-probabilities: use /v1/chat/completions");
}

ResponsesFormat::Echo echo_of(const JsonBody& body) {
  ResponsesFormat::Echo echo = {{"instructions", "null"},
                                {"max_output_tokens", "null"},
                                {"metadata", "{}"},
                                {"parallel_tool_calls", "true"},
                                {"temperature", "1.0"},
                                {"text", R"({"format":{"type":"text"}})"},
                                {"tool_choice", R"("auto")"},
                                {"tools", "[]"},
                                {"top_p", "1.0"},
                                {"truncation", R"("disabled")"}};
  for (auto& [name, value] : echo) {
    const auto sent = body.root().find(name);
    if (sent != body.root().end() && !sent->is_null()) value = body.raw(name);
  }
  return echo;
}

Result<std::string> translate(const JsonBody& body) {
  FieldReader fields(body.root());
  refuse_unsupported(fields);
  check_ignored(fields);
  bool store = false;  // asked for by default by some clients; the answer says that it was not
  fields.boolean("store", store);
  ChatBodyWriter chat;
  chat.pass_on(body);
  if (body.root().contains("parallel_tool_calls"))
    chat.writer().key("parallel_tool_calls").raw(body.raw("parallel_tool_calls"));
  std::optional<int32_t> max_tokens;
  fields.integer("max_output_tokens", 1, std::numeric_limits<int32_t>::max(), max_tokens);
  if (max_tokens) chat.writer().key("max_completion_tokens").integer(*max_tokens);
  write_input(fields, body, chat);
  chat.tools(fields, body, read_tool);
  write_tool_choice(fields, body, chat);
  write_format(fields, body, chat);
  RETURN_IF_ERROR(fields.status());
  return chat.end();
}

}  // namespace

Result<GenerationPlan> parse_responses_request(const JsonBody& body, const ModelFacts& model,
                                               const RequestLimits& limits) {
  ASSIGN_OR_RETURN(std::string chat, translate(body));
  ASSIGN_OR_RETURN(GenerationPlan plan, parse_translated(std::move(chat), model, limits, "text"));
  plan.id_prefix = "resp_";
  plan.prompt_field = "input";
  plan.format = std::make_unique<ResponsesFormat>(std::move(plan.syntax), echo_of(body));
  return plan;
}

}  // namespace gapless
