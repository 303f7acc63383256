#include "server/responses_format.h"

#include <span>

#include "server/answer_json.h"
#include "server/api_error.h"

namespace gapless {

// What a response says of itself as a whole.
struct ResponsesFormat::State {
  const char* status = "in_progress";
  const Usage* usage = nullptr;  // null: not known yet
  std::string error = {};        // message of a failure
};

namespace {

using Kind = AnswerBlock::Kind;

// How each kind of block is called. Texts stand in a message or a reasoning item as its only part.
struct ItemNames {
  const char *type, *id_prefix;
  const char* part;            // type of that part; nullptr: none
  const char *events, *whole;  // events + ".delta", ".done", and the member of the latter
};
constexpr ItemNames kNames[] = {  // by Kind
    {"message", "msg", "output_text", "response.output_text", "text"},
    {"reasoning", "rs", "reasoning_text", "response.reasoning_text", "text"},
    {"function_call", "fc", nullptr, "response.function_call_arguments", "arguments"}};

const ItemNames& names_of(const AnswerBlock& block) {
  return kNames[static_cast<size_t>(block.kind)];
}

std::string item_id(const AnswerHeader& header, const AnswerBlock& block, int64_t index) {
  return fmt::format("{}_{}_{}", names_of(block).id_prefix, header.id, index);
}

void write_part(JsonWriter& w, const AnswerBlock& block, std::string_view text) {
  w.begin_object();
  w.key("type").string(names_of(block).part).key("text").string(text);
  if (block.kind == Kind::kText) {
    w.key("annotations").begin_array().end_array();
    w.key("logprobs").begin_array().end_array();
  }
  w.end_object();
}

// An item as it begins (nothing in it yet), or as it ends.
void write_item(JsonWriter& w, const AnswerHeader& header, const AnswerBlock& block, int64_t index,
                bool ended) {
  const ItemNames& names = names_of(block);
  w.begin_object();
  w.key("id").string(item_id(header, block, index));
  w.key("type").string(names.type);
  w.key("status").string(!ended ? "in_progress" : block.cut ? "incomplete" : "completed");
  if (block.kind == Kind::kCall) {
    w.key("call_id").string(block.id).key("name").string(block.name);
    w.key("arguments").string(ended ? block.text : "");
  } else {
    if (block.kind == Kind::kText) w.key("role").string("assistant");
    if (block.kind == Kind::kReasoning) w.key("summary").begin_array().end_array();
    w.key("content").begin_array();
    if (ended) write_part(w, block, block.text);
    w.end_array();
  }
  w.end_object();
}

void write_response_usage(JsonWriter& w, const Usage* usage) {
  w.key("usage");
  if (!usage) {
    w.null();
    return;
  }
  w.begin_object();
  w.key("input_tokens").integer(usage->prompt_tokens);
  w.key("input_tokens_details").begin_object();
  w.key("cached_tokens").integer(usage->cached_tokens).key("cache_write_tokens").integer(0).end_object();
  w.key("output_tokens").integer(usage->completion_tokens);
  w.key("output_tokens_details").begin_object().key("reasoning_tokens").integer(0).end_object();
  w.key("total_tokens").integer(int64_t(usage->prompt_tokens) + usage->completion_tokens);
  w.end_object();
}

template <class Write>
void append_event(std::string& out, Choice& choice, std::string_view type, Write write) {
  out += fmt::format("event: {}\n{}", type, kSseData);
  JsonWriter w(out);
  w.begin_object();
  w.key("type").string(type).key("sequence_number").integer(choice.events++);
  write(w);
  w.end_object();
  out += kSseEnd;
}

// An event of the block: "item_id" and "output_index", and "content_index" where it has parts.
template <class Write>
void append_block_event(BlockStream stream, std::string_view type, Write write) {
  append_event(stream.out, stream.choice, type, [&](JsonWriter& w) {
    w.key("item_id").string(item_id(stream.header, stream.block(), stream.index()));
    w.key("output_index").integer(stream.index());
    if (names_of(stream.block()).part) w.key("content_index").integer(0);
    write(w);
  });
}

void append_item_event(BlockStream stream, const char* type, bool ended) {
  append_event(stream.out, stream.choice, type, [&](JsonWriter& w) {
    w.key("output_index").integer(stream.index());
    write_item(w.key("item"), stream.header, stream.block(), stream.index(), ended);
  });
}

void append_part_event(BlockStream stream, const char* type, std::string_view text) {
  append_block_event(stream, type, [&](JsonWriter& w) { write_part(w.key("part"), stream.block(), text); });
}

void write_logprobs(JsonWriter& w, const AnswerBlock& block) {
  if (block.kind == Kind::kText) w.key("logprobs").begin_array().end_array();
}

const char* final_status(const Choice& choice) {
  return choice.finish->reason == FinishReason::kLength ? "incomplete" : "completed";
}

}  // namespace

void ResponsesFormat::write_response(JsonWriter& w, const AnswerHeader& header, const Choice& choice,
                                     const State& state) const {
  w.begin_object();
  w.key("id").string(header.id);
  w.key("object").string("response");
  w.key("created_at").integer(header.created);
  w.key("status").string(state.status);
  w.key("background").boolean(false);
  w.key("error");
  if (state.error.empty()) {
    w.null();
  } else {
    w.begin_object().key("code").string("server_error").key("message").string(state.error).end_object();
  }
  w.key("incomplete_details");
  if (state.status == std::string_view("incomplete")) {
    w.begin_object().key("reason").string("max_output_tokens").end_object();
  } else {
    w.null();
  }
  w.key("model").string(header.model);
  w.key("output").begin_array();
  for (size_t i = 0; i < choice.blocks.size(); i++)
    write_item(w, header, choice.blocks[i], static_cast<int64_t>(i), /*ended=*/true);
  w.end_array();
  for (const auto& [name, json] : echo_) w.key(name).raw(json);
  w.key("previous_response_id").null();
  w.key("store").boolean(false);
  write_response_usage(w, state.usage);
  w.end_object();
}

void ResponsesFormat::append_response_event(const AnswerHeader& header, Choice& choice, const char* type,
                                            const State& state, std::string& out) const {
  append_event(out, choice, type,
               [&](JsonWriter& w) { write_response(w.key("response"), header, choice, state); });
}

void ResponsesFormat::open_answer(BlockStream stream) const {
  for (const char* type : {"response.created", "response.in_progress"})
    append_response_event(stream.header, stream.choice, type, {}, stream.out);
}

void ResponsesFormat::open_block(BlockStream stream) const {
  append_item_event(stream, "response.output_item.added", /*ended=*/false);
  if (names_of(stream.block()).part) append_part_event(stream, "response.content_part.added", "");
}

void ResponsesFormat::extend_block(BlockStream stream, std::string_view piece) const {
  const std::string type = std::string(names_of(stream.block()).events) + ".delta";
  append_block_event(stream, type, [&](JsonWriter& w) {
    w.key("delta").string(piece);
    write_logprobs(w, stream.block());
  });
}

void ResponsesFormat::close_block(BlockStream stream) const {
  const AnswerBlock& block = stream.block();
  const ItemNames& names = names_of(block);
  append_block_event(stream, std::string(names.events) + ".done", [&](JsonWriter& w) {
    w.key(names.whole).string(block.text);
    if (block.kind == Kind::kCall) w.key("name").string(block.name);
    write_logprobs(w, block);
  });
  if (names.part) append_part_event(stream, "response.content_part.done", block.text);
  append_item_event(stream, "response.output_item.done", /*ended=*/true);
}

void ResponsesFormat::end_stream(const AnswerHeader& header, std::vector<Choice>& choices,
                                 const ChunkUsage& usage, std::string& out) const {
  Choice& choice = choices.front();
  const State state{final_status(choice), &usage.usage};
  append_response_event(header, choice, fmt::format("response.{}", state.status).c_str(), state, out);
}

void ResponsesFormat::stream_error(const AnswerHeader& header, std::vector<Choice>& choices,
                                   const Status& status, std::string& out) const {
  append_response_event(header, choices.front(), "response.failed",
                        {"failed", nullptr, public_message(status, header.request_id)}, out);
}

std::string ResponsesFormat::write_whole(const AnswerHeader& header, const Choice& choice,
                                         const Usage& usage) const {
  std::string out;
  JsonWriter w(out);
  write_response(w, header, choice, {final_status(choice), &usage});
  return out;
}

}  // namespace gapless
