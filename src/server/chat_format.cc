#include "server/chat_format.h"

#include "server/answer_json.h"

namespace gapless {

namespace {

void write_token(JsonWriter& w, const TokenText& token) {
  w.key("token").string(token.bytes);
  w.key("logprob").logprob(token.logprob);
  w.key("bytes").begin_array();
  for (const char c : token.bytes) w.integer(static_cast<unsigned char>(c));
  w.end_array();
}

void write_logprobs(JsonWriter& w, const std::vector<TokenText>& tokens) {
  w.key("logprobs").begin_object().key("content").begin_array();
  for (const TokenText& token : tokens) {
    w.begin_object();
    write_token(w, token);
    w.key("top_logprobs").begin_array();
    for (const TokenText& top : token.top) {
      w.begin_object();
      write_token(w, top);
      w.end_object();
    }
    w.end_array().end_object();
  }
  w.end_array().key("refusal").null().end_object();
}

// What a chunk has beside its delta.
struct ChunkTail {
  const std::vector<TokenText>* tokens = nullptr;  // nullptr: "logprobs": null
  const std::vector<TokenText>* token_ids =
      nullptr;  // nullptr: not wanted; the opening chunk has the prompt's too
  std::optional<Finish> finish = {};
};

// {"index":0,"id":...,"type":"function","function":{...}}; pieces after the first have the arguments only.
void write_call(JsonWriter& w, const std::string* id, const AnswerPart& part) {
  w.begin_object();
  w.key("index").integer(part.call);
  if (id) w.key("id").string(*id).key("type").string("function");
  w.key("function").begin_object();
  if (id) w.key("name").string(part.text);
  w.key("arguments").string(id ? std::string_view() : part.text);
  w.end_object().end_object();
}

// One chunk. `write_delta` writes the members of its delta.
template <class WriteDelta>
void append_chunk(std::string& out, const AnswerHeader& header, const Choice& choice, const ChunkTail& tail,
                  const ChunkUsage& usage, WriteDelta write_delta) {
  out += kSseData;
  JsonWriter w(out);
  begin_answer(w, header, "chat.completion.chunk");
  if (!choice.opened && tail.token_ids) write_prompt_token_ids(w, *choice.prompt);
  w.key("choices").begin_array().begin_object();
  w.key("index").integer(choice.index);
  w.key("delta").begin_object();
  write_delta(w);
  w.end_object();
  if (tail.tokens) {
    write_logprobs(w, *tail.tokens);
  } else {
    w.key("logprobs").null();
  }
  if (tail.token_ids) write_token_ids(w, *tail.token_ids);
  write_finish(w, tail.finish, choice.parser && choice.parser->n_calls() > 0, header.request_id);
  w.end_object().end_array();
  write_chunk_usage(w, usage);
  w.end_object();
  out += kSseEnd;
}

void write_part(JsonWriter& w, const AnswerHeader& header, const Choice& choice, const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::kContent:
      w.key("content").string(part.text);
      return;
    case AnswerPart::Kind::kReasoning:
      w.key("reasoning_content").string(part.text);
      return;
    case AnswerPart::Kind::kCallBegin:
    case AnswerPart::Kind::kCallArguments:
      break;
  }
  const std::string id = call_id(header, choice, part.call);
  w.key("tool_calls").begin_array();
  write_call(w, part.kind == AnswerPart::Kind::kCallBegin ? &id : nullptr, part);
  w.end_array();
}

void write_message(JsonWriter& w, const AnswerHeader& header, const Choice& choice,
                   const AnswerParts& parts) {
  w.key("message").begin_object();
  w.key("role").string("assistant");
  const bool nothing_said = parts.content.empty() && !(parts.calls.empty() && parts.reasoning.empty());
  w.key("content");
  nothing_said ? w.null() : w.string(parts.content);
  if (!parts.reasoning.empty()) w.key("reasoning_content").string(parts.reasoning);
  if (!parts.calls.empty()) {
    w.key("tool_calls").begin_array();
    for (size_t i = 0; i < parts.calls.size(); i++) {
      w.begin_object();
      w.key("id").string(call_id(header, choice, int32_t(i))).key("type").string("function");
      w.key("function").begin_object();
      w.key("name").string(parts.calls[i].name).key("arguments").string(parts.calls[i].arguments);
      w.end_object().end_object();
    }
    w.end_array();
  }
  w.key("refusal").null();
  w.end_object();
}

}  // namespace

void ChatFormat::stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                              const ChunkUsage& usage, std::string& out) const {
  const std::vector<AnswerPart> parts = answer_parts(syntax_, choice, delta);
  const std::vector<TokenText> none;
  const std::vector<TokenText>* const no_ids = token_ids_ ? &none : nullptr;
  if (!choice.opened) {
    append_chunk(out, header, choice, {.token_ids = no_ids}, usage,
                 [](JsonWriter& w) { w.key("role").string("assistant").key("content").string(""); });
    choice.opened = true;
  }
  // The tokens come with the first part; without one, with an empty text.
  ChunkTail tail{.tokens = logprobs_ && !delta.tokens.empty() ? &delta.tokens : nullptr,
                 .token_ids = token_ids_ ? &delta.tokens : nullptr};
  if (parts.empty() && wants_tokens() && !delta.tokens.empty())
    append_chunk(out, header, choice, tail, usage, [](JsonWriter& w) { w.key("content").string(""); });
  for (const AnswerPart& part : parts) {
    append_chunk(out, header, choice, std::exchange(tail, {.token_ids = no_ids}), usage,
                 [&](JsonWriter& w) { write_part(w, header, choice, part); });
  }
  if (delta.finish)
    append_chunk(out, header, choice, {.token_ids = no_ids, .finish = delta.finish}, usage,
                 [](JsonWriter&) {});
}

std::string ChatFormat::whole(const AnswerHeader& header, std::vector<Choice>& choices,
                              const Usage& usage) const {
  std::string out;
  JsonWriter w(out);
  begin_answer(w, header, "chat.completion");
  if (token_ids_) write_prompt_token_ids(w, *choices.front().prompt);
  w.key("choices").begin_array();
  for (const Choice& choice : choices) {
    w.begin_object();
    w.key("index").integer(choice.index);
    const AnswerParts parts = answer_parts(syntax_, choice);
    write_message(w, header, choice, parts);
    if (logprobs_) {
      write_logprobs(w, choice.tokens);
    } else {
      w.key("logprobs").null();
    }
    if (token_ids_) write_token_ids(w, choice.tokens);
    write_finish(w, choice.finish, !parts.calls.empty(), header.request_id);
    w.end_object();
  }
  w.end_array();
  write_usage(w, usage);
  w.end_object();
  return out;
}

}  // namespace gapless
