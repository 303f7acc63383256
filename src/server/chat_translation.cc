#include "server/chat_translation.h"

#include <algorithm>

namespace gapless {

using nlohmann::json;

namespace {

// The same in every chat API, and what this server knows beyond them.
constexpr const char* kSameFields[] = {"model",
                                       "stream",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "seed",
                                       "frequency_penalty",
                                       "presence_penalty",
                                       "repetition_penalty",
                                       "logit_bias",
                                       "min_tokens",
                                       "ignore_eos",
                                       "stop_token_ids",
                                       "skip_special_tokens",
                                       "cache_salt",
                                       "chat_template_kwargs"};

void write_calls(JsonWriter& w, const std::vector<ChatTurn::Call>& calls) {
  w.key("tool_calls").begin_array();
  for (const ChatTurn::Call& call : calls) {
    w.begin_object();
    w.key("id").string(call.id);
    w.key("type").string("function");
    w.key("function").begin_object();
    w.key("name").string(call.name);
    w.key("arguments").raw(call.arguments);
    w.end_object().end_object();
  }
  w.end_array();
}

}  // namespace

void ChatBodyWriter::pass_on(const JsonBody& body) {
  for (const char* field : kSameFields) {
    if (body.root().contains(field)) writer_.key(field).raw(body.raw(field));
  }
}

void ChatBodyWriter::messages(const std::vector<ChatTurn>& turns) {
  writer_.key("messages").begin_array();
  for (const ChatTurn& turn : turns) {
    writer_.begin_object();
    writer_.key("role").string(turn.role);
    if (!turn.call_id.empty()) writer_.key("tool_call_id").string(turn.call_id);
    writer_.key("content").string(turn.text);
    if (!turn.reasoning.empty()) writer_.key("reasoning_content").string(turn.reasoning);
    if (!turn.calls.empty()) write_calls(writer_, turn.calls);
    writer_.end_object();
  }
  writer_.end_array();
}

void ChatBodyWriter::tools(FieldReader& fields, const JsonBody& body,
                           void (*read_tool)(FieldReader&, const WrittenJson&, const std::string&,
                                             ChatBodyWriter&)) {
  const json* tools = fields.find("tools");
  if (!tools || fields.failed()) return;
  if (!tools->is_array()) return fields.fail("tools", "tools must be an array, got " + describe_json(*tools));
  const std::string text = body.raw("tools");
  const std::vector<WrittenJson> elements = written_elements({*tools, text});
  writer_.key("tools").begin_array();
  for (size_t i = 0; i < elements.size() && !fields.failed(); i++)
    read_tool(fields, elements[i], fmt::format("tools[{}]", i), *this);
  writer_.end_array();
}

void ChatBodyWriter::tool(const std::string& name, const std::string& description,
                          const std::string& parameters) {
  writer_.begin_object();
  writer_.key("type").string("function");
  writer_.key("function").begin_object();
  writer_.key("name").string(name);
  if (!description.empty()) writer_.key("description").string(description);
  if (!parameters.empty()) writer_.key("parameters").raw(parameters);
  writer_.end_object().end_object();
}

void ChatBodyWriter::named_tool(const std::string& name) {
  writer_.key("tool_choice").begin_object();
  writer_.key("type").string("function");
  writer_.key("function").begin_object().key("name").string(name).end_object();
  writer_.end_object();
}

void ChatBodyWriter::json_schema(const std::string& schema) {
  writer_.key("response_format").begin_object();
  writer_.key("type").string("json_schema");
  writer_.key("json_schema").begin_object();
  writer_.key("name").string("answer").key("schema").raw(schema);
  writer_.end_object().end_object();
}

std::string required_string(FieldReader& fields, const std::string& field, const json& object,
                            const std::string& where, const char* member) {
  const auto it = object.find(member);
  if (it != object.end() && it->is_string()) return it->get<std::string>();
  fields.fail(field, fmt::format("{}.{} must be a string{}", where, member,
                                 it == object.end() ? "" : ", got " + describe_json(*it)));
  return {};
}

std::string optional_string(FieldReader& fields, const std::string& field, const json& object,
                            const std::string& where, const char* member) {
  const auto it = object.find(member);
  return it == object.end() || it->is_null() ? "" : required_string(fields, field, object, where, member);
}

std::string type_of(const json& object) {
  const auto it = object.is_object() ? object.find("type") : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::string text_content(FieldReader& fields, const std::string& field, const json& content,
                         const std::string& where, const std::vector<std::string_view>& types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    fields.fail(field, fmt::format("{} must be a string or an array, got {}", where, describe_json(content)));
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content.size() && !fields.failed(); i++) {
    const std::string name = fmt::format("{}[{}]", where, i), type = type_of(content[i]);
    if (type.empty()) fields.fail(field, name + " must be an object with a type");
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      fields.fail(field,
                  fmt::format("{} has type \"{}\", this model takes text only", name, printable(type, 40)),
                  "unsupported");
    }
    if (!fields.failed())
      text += required_string(fields, field, content[i], name, type == "refusal" ? "refusal" : "text");
  }
  return text;
}

Result<GenerationPlan> parse_translated(std::string chat_body, const ModelFacts& model,
                                        const RequestLimits& limits, const char* format_field) {
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(chat_body)));
  ASSIGN_OR_RETURN(GenerationPlan plan, parse_chat_request(body, model, limits));
  GenerateRequest& request = plan.requests.front();
  if (request.grammar_field == "response_format") request.grammar_field = format_field;
  return plan;
}

}  // namespace gapless
