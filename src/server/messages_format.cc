#include "server/messages_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/answer_json.h"
#include "server/api_error.h"

namespace gapless {

namespace {

using Kind = AnswerBlock::Kind;

// One event: event: `type`, data: {"type": `type`, ... what `write` adds}.
template <class Write>
void append_event(std::string& out, const char* type, Write write) {
  out += fmt::format("event: {}\n{}", type, kSseData);
  JsonWriter w(out);
  w.begin_object().key("type").string(type);
  write(w);
  w.end_object();
  out += kSseEnd;
}

const char* stop_reason(const Choice& choice) {
  const Finish& finish = *choice.finish;
  if (finish.reason == FinishReason::kLength) return "max_tokens";
  if (std::holds_alternative<std::string>(finish.matched)) return "stop_sequence";
  const bool calls = std::any_of(choice.blocks.begin(), choice.blocks.end(),
                                 [](const AnswerBlock& b) { return b.kind == Kind::kCall; });
  return calls ? "tool_use" : "end_turn";
}

// stop_reason and stop_sequence; null while the answer grows.
void write_stop(JsonWriter& w, const Choice& choice) {
  const std::string* matched = choice.finish ? std::get_if<std::string>(&choice.finish->matched) : nullptr;
  w.key("stop_reason").string_or_null(choice.finish ? stop_reason(choice) : "");
  w.key("stop_sequence").string_or_null(matched ? *matched : "");
}

// Anthropic counts what came from the cache apart.
void write_messages_usage(JsonWriter& w, const Usage& usage) {
  w.key("usage").begin_object();
  w.key("input_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
  w.key("cache_creation_input_tokens").integer(0);
  w.key("cache_read_input_tokens").integer(usage.cached_tokens);
  w.key("output_tokens").integer(usage.completion_tokens);
  w.end_object();
}

// text: what it holds so far. The input of a call that is streamed begins as {} and comes in pieces.
void write_block(JsonWriter& w, const AnswerBlock& block, std::string_view text) {
  w.begin_object();
  switch (block.kind) {
    case Kind::kText:
      w.key("type").string("text").key("text").string(text);
      break;
    case Kind::kReasoning:
      w.key("type").string("thinking").key("thinking").string(text).key("signature").string("");
      break;
    case Kind::kCall:
      w.key("type").string("tool_use").key("id").string(block.id).key("name").string(block.name);
      w.key("input").raw(nlohmann::json::accept(text) ? text : "{}");  // it may have been cut
      break;
  }
  w.end_object();
}

// As far as the answer has come.
void write_message(JsonWriter& w, const AnswerHeader& header, const Choice& choice, const Usage& usage) {
  w.key("id").string(header.id);
  w.key("type").string("message");
  w.key("role").string("assistant");
  w.key("model").string(header.model);
  w.key("content").begin_array();
  for (const AnswerBlock& block : choice.blocks) write_block(w, block, block.text);
  w.end_array();
  write_stop(w, choice);
  write_messages_usage(w, usage);
}

}  // namespace

void MessagesFormat::open_answer(BlockStream stream) const {
  Usage usage;  // what the cache gave is known at the end
  usage.prompt_tokens = static_cast<int32_t>(stream.choice.prompt->accepted->prompt_ids.size());
  append_event(stream.out, "message_start", [&](JsonWriter& w) {
    w.key("message").begin_object();
    write_message(w, stream.header, {}, usage);
    w.end_object();
  });
}

void MessagesFormat::open_block(BlockStream stream) const {
  append_event(stream.out, "content_block_start", [&](JsonWriter& w) {
    w.key("index").integer(stream.index());
    write_block(w.key("content_block"), stream.block(), "");
  });
}

void MessagesFormat::extend_block(BlockStream stream, std::string_view piece) const {
  struct Delta {
    const char *type, *member;
  };
  constexpr Delta kDeltas[] = {// by Kind
                               {"text_delta", "text"},
                               {"thinking_delta", "thinking"},
                               {"input_json_delta", "partial_json"}};
  const Delta& delta = kDeltas[static_cast<size_t>(stream.block().kind)];
  append_event(stream.out, "content_block_delta", [&](JsonWriter& w) {
    w.key("index").integer(stream.index());
    w.key("delta").begin_object();
    w.key("type").string(delta.type).key(delta.member).string(piece);
    w.end_object();
  });
}

void MessagesFormat::close_block(BlockStream stream) const {
  append_event(stream.out, "content_block_stop",
               [&](JsonWriter& w) { w.key("index").integer(stream.index()); });
}

void MessagesFormat::end_stream(const AnswerHeader&, std::vector<Choice>& choices, const ChunkUsage& usage,
                                std::string& out) const {
  append_event(out, "message_delta", [&](JsonWriter& w) {
    w.key("delta").begin_object();
    write_stop(w, choices.front());
    w.end_object();
    write_messages_usage(w, usage.usage);
  });
  append_event(out, "message_stop", [](JsonWriter&) {});
}

void MessagesFormat::stream_error(const AnswerHeader& header, std::vector<Choice>&, const Status& status,
                                  std::string& out) const {
  out += fmt::format("event: error\n{}", kSseData);
  out += messages_error_json(http_status_of(status.code()), public_message(status, header.request_id),
                             header.request_id);
  out += kSseEnd;
}

std::string_view MessagesFormat::keepalive() const {
  return "event: ping\ndata: {\"type\":\"ping\"}\n\n";
}

std::string MessagesFormat::write_whole(const AnswerHeader& header, const Choice& choice,
                                        const Usage& usage) const {
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  write_message(w, header, choice, usage);
  w.end_object();
  return out;
}

}  // namespace gapless
