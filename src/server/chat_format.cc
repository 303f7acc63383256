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

struct Chunk {
  const char* role = nullptr;  // the chunk that opens the choice
  std::string_view text = {};
  const std::vector<TokenText>* tokens = nullptr;  // nullptr: "logprobs": null
  const std::vector<TokenText>* token_ids =
      nullptr;  // nullptr: not wanted; the opening chunk has the prompt's too
  std::optional<Finish> finish = {};
};

void append_chunk(std::string& out, const AnswerHeader& header, const Choice& choice, const Chunk& chunk,
                  const ChunkUsage& usage) {
  out += kSseData;
  JsonWriter w(out);
  begin_answer(w, header, "chat.completion.chunk");
  if (chunk.role && chunk.token_ids) write_prompt_token_ids(w, *choice.prompt);
  w.key("choices").begin_array().begin_object();
  w.key("index").integer(choice.index);
  w.key("delta").begin_object();
  if (chunk.role) w.key("role").string(chunk.role);
  if (!chunk.finish) w.key("content").string(chunk.text);
  w.end_object();
  if (chunk.tokens) {
    write_logprobs(w, *chunk.tokens);
  } else {
    w.key("logprobs").null();
  }
  if (chunk.token_ids) write_token_ids(w, *chunk.token_ids);
  write_finish(w, chunk.finish, header.request_id);
  w.end_object().end_array();
  write_chunk_usage(w, usage);
  w.end_object();
  out += kSseEnd;
}

}  // namespace

void ChatFormat::stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                              const ChunkUsage& usage, std::string& out) const {
  const std::vector<TokenText> none;
  if (!choice.opened) {
    append_chunk(out, header, choice, {.role = "assistant", .token_ids = token_ids_ ? &none : nullptr},
                 usage);
    choice.opened = true;
  }
  const bool tokens = !delta.tokens.empty();
  if (!delta.text.empty() || (tokens && wants_tokens())) {
    append_chunk(out, header, choice,
                 {.text = delta.text,
                  .tokens = tokens && logprobs_ ? &delta.tokens : nullptr,
                  .token_ids = token_ids_ ? &delta.tokens : nullptr},
                 usage);
  }
  if (delta.finish) {
    append_chunk(out, header, choice, {.token_ids = token_ids_ ? &none : nullptr, .finish = delta.finish},
                 usage);
  }
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
    w.key("message").begin_object();
    w.key("role").string("assistant");
    w.key("content").string(choice.text);
    w.key("refusal").null();
    w.end_object();
    if (logprobs_) {
      write_logprobs(w, choice.tokens);
    } else {
      w.key("logprobs").null();
    }
    if (token_ids_) write_token_ids(w, choice.tokens);
    write_finish(w, choice.finish, header.request_id);
    w.end_object();
  }
  w.end_array();
  write_usage(w, usage);
  w.end_object();
  return out;
}

}  // namespace gapless
