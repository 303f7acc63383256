#include "server/chat_format.h"
#include "server/common_fields.h"
#include "server/generation_plan.h"
#include "server/grammar_fields.h"
#include "server/json_writer.h"
#include "server/tool_use.h"

namespace gapless {

using nlohmann::json;

namespace {

constexpr size_t kMaxMessages = 10'000;
constexpr int32_t kMaxTopLogprobs = 20;

void check_content(FieldReader& fields, const json& content, const std::string& name) {
  if (content.is_string() || content.is_null()) return;
  if (!content.is_array()) {
    return fields.fail("messages", fmt::format("{} must be a string, an array of parts or null, got {}", name,
                                               describe_json(content)));
  }
  for (size_t i = 0; i < content.size(); i++) {
    const json& part = content[i];
    const bool typed = part.is_object() && part.contains("type") && part["type"].is_string();
    if (!typed) return fields.fail("messages", fmt::format("{}[{}] must be an object with a type", name, i));
    const auto& type = part["type"].get_ref<const std::string&>();
    if (type != "text" && type != "refusal") {
      return fields.fail(
          "messages",
          fmt::format("{}[{}] has type \"{}\", this model takes text only", name, i, printable(type, 40)),
          "unsupported");
    }
    // A part of type "refusal" has its text in a member of that name.
    if (!part.contains(type) || !part[type].is_string()) {
      return fields.fail("messages", fmt::format("{}[{}].{} must be a string", name, i, type));
    }
  }
}

void check_messages(FieldReader& fields) {
  const json* messages = fields.find("messages");
  if (fields.failed()) return;
  if (!messages)
    return fields.fail("messages", "messages is missing: an array of {\"role\", \"content\"} objects");
  if (!messages->is_array())
    return fields.fail("messages", "messages must be an array, got " + describe_json(*messages));
  if (messages->empty()) return fields.fail("messages", "messages is empty: at least one message is needed");
  if (messages->size() > kMaxMessages) {
    return fields.fail("messages", fmt::format("messages has {} entries, at most {} are allowed",
                                               messages->size(), kMaxMessages));
  }
  for (size_t i = 0; i < messages->size() && !fields.failed(); i++) {
    const json& message = (*messages)[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return fields.fail("messages", fmt::format("messages[{}] must be an object with a role", i));
    }
    if (message.contains("content"))
      check_content(fields, message["content"], fmt::format("messages[{}].content", i));
  }
}

void refuse_functions(FieldReader& fields) {
  const json* functions = fields.find("functions");
  if (functions && *functions != json::array()) fields.unsupported("functions", "it was replaced by tools");
  const json* call = fields.find("function_call");
  if (call && *call != "none" && *call != "auto")
    fields.unsupported("function_call", "it was replaced by tool_choice");
}

bool read_template_kwargs(FieldReader& fields) {
  const json* kwargs = fields.find("chat_template_kwargs");
  if (!kwargs || fields.failed()) return false;
  if (!kwargs->is_object())
    fields.fail("chat_template_kwargs",
                "chat_template_kwargs must be an object, got " + describe_json(*kwargs));
  return true;
}

void refuse_other_modalities(FieldReader& fields) {
  const json* modalities = fields.find("modalities");
  if (modalities && *modalities != json::array({"text"}))
    fields.unsupported("modalities", "this model answers in text");
  if (fields.find("audio")) fields.unsupported("audio", "this model answers in text");
  bool echo = false;
  fields.boolean("echo", echo);
  if (echo) fields.unsupported("echo", "only /v1/completions can repeat its prompt");
}

ChatPrompt read_chat(FieldReader& fields, const JsonBody& body, const ToolUse& use) {
  ChatPrompt chat;
  check_messages(fields);
  refuse_functions(fields);
  if (fields.find("chat_template"))
    fields.unsupported("chat_template", "the server's own is used (--chat-template)");
  const bool with_kwargs = read_template_kwargs(fields);
  fields.boolean("add_generation_prompt", chat.add_generation_prompt);
  fields.boolean("continue_final_message", chat.continue_final_message);
  if (chat.continue_final_message && !fields.find("add_generation_prompt"))
    chat.add_generation_prompt = false;
  if (chat.continue_final_message && chat.add_generation_prompt) {
    fields.fail("continue_final_message",
                "continue_final_message and add_generation_prompt cannot both be true");
  }
  if (fields.failed()) return chat;
  chat.messages = body.raw("messages");
  if (!use.functions.empty() && use.choice != ToolUse::Choice::kNone) chat.tools = body.raw("tools");
  if (with_kwargs) chat.template_kwargs = body.raw("chat_template_kwargs");
  return chat;
}

int32_t read_top_logprobs(FieldReader& fields) {
  bool logprobs = false;
  fields.boolean("logprobs", logprobs);
  int32_t top = 0;
  fields.integer("top_logprobs", 0, kMaxTopLogprobs, top);
  if (fields.find("top_logprobs") && top > 0 && !logprobs) {
    fields.fail("top_logprobs", "top_logprobs needs \"logprobs\": true");
  }
  return logprobs ? top : -1;
}

}  // namespace

Result<GenerationPlan> parse_chat_request(const JsonBody& body, const ModelFacts& model,
                                          const RequestLimits& limits) {
  FieldReader fields(body.root());
  GenerationPlan plan;
  read_common_fields(fields, model, limits, plan);
  GenerateRequest request;
  read_sampling_fields(fields, model, /*min_max_tokens=*/1, request);
  request.sampling.top_logprobs = read_top_logprobs(fields);
  refuse_other_modalities(fields);
  const ToolUse use = read_tools(fields, body);
  request.prompt = read_chat(fields, body, use);
  read_grammar(
      fields, [&](const std::string& field) { return body.raw(field); }, request);
  bool separate_reasoning = true;
  fields.boolean("separate_reasoning", separate_reasoning);
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(plan.syntax, apply_tools(use, model, request));
  plan.syntax.reasoning = model.marks_reasoning && separate_reasoning;

  request.n = plan.n;
  plan.id_prefix = "chatcmpl-";
  plan.prompt_field = "messages";
  plan.format =
      std::make_unique<ChatFormat>(request.sampling.top_logprobs >= 0, plan.return_token_ids, plan.syntax);
  plan.requests.push_back(std::move(request));
  return plan;
}

}  // namespace gapless
