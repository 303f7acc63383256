// The model's chat template: OpenAI messages to the text the model was trained on, with the user's words
// marked so that no spelling in them becomes a control token. Immutable once compiled: any thread may render.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/tokenizer.h"
#include "engine/tool_format.h"

struct gapless_text_template;

namespace gapless {

// A chat as the client sent it. JSON texts; their meaning is checked here.
struct ChatInput {
  std::string_view messages = {};         // array
  std::string_view tools = {};            // array, or empty
  std::string_view template_kwargs = {};  // object of further template variables, or empty
  bool add_generation_prompt = true;
  bool continue_final_message =
      false;  // the text ends with the last message's own: the model goes on with it
};

class ChatTemplate {
 public:
  // Hugging Face's semantics of Jinja (trim_blocks, lstrip_blocks, tojson, raise_exception, strftime_now,
  // Python's string methods). Error: a template that does not parse, with its line.
  static Result<ChatTemplate> compile(std::string_view source, const Tokenizer& tokenizer);
  ChatTemplate(ChatTemplate&&) = default;
  ChatTemplate& operator=(ChatTemplate&&) = default;

  // Errors are the client's and name the field (param messages, tools or chat_template_kwargs); what the
  // template itself refuses (raise_exception) is told in the template's words. A template that does not know
  // tools gets them, their calls and results as plain messages (tool_prompt.h). Content in parts is the same
  // as their texts joined without a separator. Twice the template's own time: SmolLM2's takes some 10 us.
  Result<MarkedText> render(const ChatInput& input) const;

  // How its model writes calls, and whether it marks what it thinks (<think>).
  const ToolFormat& tool_format() const { return *tool_format_; }
  bool marks_reasoning() const { return marks_reasoning_; }
  const std::string& source() const { return source_; }

 private:
  struct Free {
    void operator()(gapless_text_template* handle) const;
  };
  ChatTemplate() = default;
  Status add_tools(std::string_view tools, nlohmann::ordered_json& messages, std::string& user) const;

  std::unique_ptr<gapless_text_template, Free> handle_;
  std::string source_;
  std::string trusted_;  // bos_token and eos_token as members of a JSON object
  bool knows_developer_ = false, knows_tools_ = false, knows_calls_ = false, wants_short_ids_ = false;
  bool marks_reasoning_ = false;
  const ToolFormat* tool_format_ = nullptr;
};

// `--chat-template NAME|path`: the source of a built-in template, or a file's content.
Result<std::string> load_chat_template(const std::string& name_or_path);
// Names of the built-in templates.
std::vector<std::string_view> builtin_chat_templates();
// The answer to a chat request when the file has no template and none was given.
Status no_chat_template();

}  // namespace gapless
