#include "engine/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/builtin_templates.h"
#include "engine/chat_messages.h"
#include "engine/text_ffi.h"
#include "engine/tool_prompt.h"

namespace gapless {
namespace {

constexpr uintmax_t kMaxTemplateBytes = 4 << 20;  // the longest in use is some 20 KB

std::string_view stripped(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Cuts the text behind the last message's own words, and the ranges with it.
Status end_with(std::string_view last_content, MarkedText& chat) {
  const std::string_view words = stripped(last_content);
  const size_t at = words.empty() ? std::string::npos : chat.text.rfind(words);
  if (at == std::string::npos) {
    return Status::invalid(
               "continue_final_message: the chat template does not show the last message's content")
        .with_param("continue_final_message");
  }
  chat.text.resize(at + words.size());
  while (!chat.user.empty() && chat.user.back().begin >= chat.text.size()) chat.user.pop_back();
  if (!chat.user.empty()) chat.user.back().end = std::min(chat.user.back().end, chat.text.size());
  return Status::ok();
}

// "name":"text of the token", for the template's variable of that name; nothing if the model has no such
// token.
std::string token_variable(const char* name, const Tokenizer& tokenizer, int32_t id) {
  if (id < 0) return {};
  const std::string text(tokenizer.token_bytes().of(id));
  return fmt::format("{}:{},", nlohmann::json(name).dump(), nlohmann::json(text).dump());
}

}  // namespace

void ChatTemplate::Free::operator()(gapless_text_template* handle) const {
  gapless_text_template_free(handle);
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, const Tokenizer& tokenizer) {
  gapless_text_template* handle = nullptr;
  std::string error;
  RETURN_IF_ERROR(ffi_status(
      gapless_text_template_new(ffi_text(source), tokenizer.ffi(), &handle, ffi_sink(error)), error));
  ChatTemplate result;
  result.handle_.reset(handle);
  result.source_ = source;
  const auto mentions = [&](std::string_view word) { return source.find(word) != std::string_view::npos; };
  result.knows_developer_ = mentions("developer");
  result.knows_tools_ = mentions("tools");
  result.knows_calls_ = mentions("tool_calls");
  result.wants_short_ids_ = mentions("length != 9");
  result.marks_reasoning_ = mentions(kReasoningEnd);
  result.tool_format_ = &tool_format_of(source);
  result.trusted_ = token_variable("bos_token", tokenizer, tokenizer.bos_id()) +
                    token_variable("eos_token", tokenizer, tokenizer.eos_id());
  return result;
}

// Where the template cannot show them, in the messages; else as its variable `tools`.
Status ChatTemplate::add_tools(std::string_view tools, nlohmann::ordered_json& messages,
                               std::string& user) const {
  if (!knows_calls_) spell_out_calls(messages);
  if (wants_short_ids_) shorten_call_ids(messages);
  if (tools.empty()) return {};
  RETURN_IF_ERROR(check_json(tools, true, "tools"));
  const auto parsed = nlohmann::ordered_json::parse(tools);
  if (parsed.empty()) return {};
  if (knows_tools_) {
    user.append(R"(,"tools":)").append(tools);
  } else {
    describe_tools(parsed, messages);
  }
  return {};
}

Result<MarkedText> ChatTemplate::render(const ChatInput& input) const {
  ASSIGN_OR_RETURN(nlohmann::ordered_json messages, normalise_messages(input.messages, knows_developer_));
  std::string tools;
  RETURN_IF_ERROR(add_tools(input.tools, messages, tools));
  const std::string user = R"({"messages":)" + messages.dump() + tools + "}";
  const std::string_view extra = input.template_kwargs.empty() ? "{}" : input.template_kwargs;
  RETURN_IF_ERROR(check_json(extra, false, "chat_template_kwargs"));
  const bool prompt = input.add_generation_prompt && !input.continue_final_message;
  const std::string trusted = fmt::format(R"({{{}"add_generation_prompt":{}}})", trusted_, prompt);

  MarkedText chat;
  std::vector<gapless_text_range> ranges;
  std::string error;
  Status status = ffi_status(gapless_text_template_render(
                                 handle_.get(), ffi_text(trusted), ffi_text(user), ffi_text(extra),
                                 ffi_sink(chat.text), ffi_sink<gapless_text_range>(ranges), ffi_sink(error)),
                             error);
  if (status.code() == StatusCode::kInvalidArgument) return std::move(status).with_param("messages");
  RETURN_IF_ERROR(std::move(status));
  for (const auto& range : ranges) chat.user.push_back({range.begin, range.end});
  if (input.continue_final_message) {
    RETURN_IF_ERROR(end_with(messages.back()["content"].get_ref<const std::string&>(), chat));
  }
  return chat;
}

Result<std::string> load_chat_template(const std::string& name_or_path) {
  if (const auto* builtin = find_builtin_template(name_or_path)) return std::string(builtin->source);
  std::string source;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name_or_path, ignored) &&
      std::filesystem::file_size(name_or_path, ignored) <= kMaxTemplateBytes) {
    std::ifstream file(name_or_path, std::ios::binary);
    source.assign(std::istreambuf_iterator<char>(file), {});
  }
  if (source.empty()) {
    return Status::invalid(
        "--chat-template {}: neither a readable template file nor a built-in template ({})", name_or_path,
        fmt::join(builtin_chat_templates(), ", "));
  }
  return source;
}

std::vector<std::string_view> builtin_chat_templates() {
  std::vector<std::string_view> names;
  for (const auto& builtin : builtin_template_table()) names.push_back(builtin.name);
  return names;
}

Status no_chat_template() {
  return Status::invalid(
             "this model file has no chat template: start the server with --chat-template NAME or a file "
             "(built in: {}), or use "
             "/v1/completions",
             fmt::join(builtin_chat_templates(), ", "))
      .with_param("messages")
      .with_error_code("no_chat_template");
}

}  // namespace gapless
