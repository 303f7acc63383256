#include "server/answer_json.h"

#include "server/api_error.h"

namespace gapless {

namespace {

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

bool begins_in_reasoning(const Choice& choice) {
  return choice.prompt->accepted && choice.prompt->accepted->opens_reasoning;
}

}  // namespace

void begin_answer(JsonWriter& w, const AnswerHeader& header, const char* object) {
  w.begin_object();
  w.key("id").string(header.id);
  w.key("object").string(object);
  w.key("created").integer(header.created);
  w.key("model").string(header.model);
  w.key("system_fingerprint").string(header.fingerprint);
}

void write_usage(JsonWriter& w, const Usage& usage) {
  w.key("usage").begin_object();
  w.key("prompt_tokens").integer(usage.prompt_tokens);
  w.key("completion_tokens").integer(usage.completion_tokens);
  w.key("total_tokens").integer(int64_t(usage.prompt_tokens) + usage.completion_tokens);
  w.key("prompt_tokens_details")
      .begin_object()
      .key("cached_tokens")
      .integer(usage.cached_tokens)
      .end_object();
  w.key("completion_tokens_details").begin_object().key("reasoning_tokens").integer(0).end_object();
  w.end_object();
}

void write_chunk_usage(JsonWriter& w, const ChunkUsage& usage) {
  if (usage.kind == ChunkUsage::Kind::kNull) w.key("usage").null();
  if (usage.kind == ChunkUsage::Kind::kFilled) write_usage(w, usage.usage);
}

void write_token_ids(JsonWriter& w, std::span<const TokenText> tokens) {
  w.key("token_ids").begin_array();
  for (const TokenText& token : tokens) w.integer(token.id);
  w.end_array();
}

void write_prompt_token_ids(JsonWriter& w, const PromptState& prompt) {
  w.key("prompt_token_ids").begin_array();
  for (const int32_t id : prompt.accepted->prompt_ids) w.integer(id);
  w.end_array();
}

void write_finish(JsonWriter& w, const std::optional<Finish>& finish, const std::string& request_id) {
  w.key("finish_reason");
  if (!finish) {
    w.null();
    return;
  }
  w.string(finish_name(finish->reason));
  if (finish->reason == FinishReason::kError) write_error(w, finish->status, request_id);
}

// {"error": {...}}: its inner object becomes the choice's member of the same name.
void write_error(JsonWriter& w, const Status& status, const std::string& request_id) {
  const std::string wrapped = error_json(status, request_id);
  w.key("error").raw(std::string_view(wrapped).substr(9, wrapped.size() - 10));
}

void write_finish(JsonWriter& w, const std::optional<Finish>& finish, bool called,
                  const std::string& request_id) {
  const bool by_itself = finish && finish->reason == FinishReason::kStop &&
                         !std::holds_alternative<std::string>(finish->matched);
  if (!called || !by_itself) return write_finish(w, finish, request_id);
  w.key("finish_reason").string("tool_calls");
}

std::vector<AnswerPart> answer_parts(const AnswerSyntax& syntax, Choice& choice, const ChoiceDelta& delta) {
  if (!choice.parser) choice.parser = std::make_unique<AnswerParser>(syntax, begins_in_reasoning(choice));
  std::vector<AnswerPart> parts;
  choice.parser->feed(delta.text, parts);
  if (delta.finish) choice.parser->finish(parts);
  return parts;
}

AnswerParts answer_parts(const AnswerSyntax& syntax, const Choice& choice) {
  return parse_answer(syntax, begins_in_reasoning(choice), choice.text);
}

std::string call_id(const AnswerHeader& header, const Choice& choice, int32_t call) {
  const std::string_view unique = std::string_view(header.id).substr(header.id.find('-') + 1);
  return fmt::format("call_{}_{}_{}", unique, choice.index, call);
}

std::string token_text(const TokenText& token) {
  std::string text;
  append_utf8_lossy(text, token.bytes);
  return text;
}

void AnswerFormat::end_stream(const AnswerHeader& header, std::vector<Choice>&, const ChunkUsage& usage,
                              std::string& out) const {
  if (usage.kind == ChunkUsage::Kind::kFilled) {
    out += kSseData;
    JsonWriter w(out);
    begin_answer(w, header, chunk_object());
    w.key("choices").begin_array().end_array();
    write_usage(w, usage.usage);
    w.end_object();
    out += kSseEnd;
  }
  out += kSseDone;
}

void AnswerFormat::stream_error(const AnswerHeader& header, std::vector<Choice>&, const Status& status,
                                std::string& out) const {
  out += kSseData;
  out += error_json(status, header.request_id);
  out += kSseEnd;
}

std::string_view AnswerFormat::keepalive() const {
  return kSseComment;
}

}  // namespace gapless
