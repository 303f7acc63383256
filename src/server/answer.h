// The answers to one HTTP request while they grow, and how an endpoint writes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_api.h"
#include "server/answer_parser.h"
#include "server/text_offsets.h"

namespace gapless {

struct PromptState {
  RequestId id = 0;
  std::string name;  // what clients call it: /generate's rid, else made from the answer's id
  std::optional<Accepted> accepted;
  PromptScored scored;
  bool ended = false;  // Done or Failed has come
  Usage usage;         // final once ended; cached_tokens as soon as there is a delta
};

// A part of an answer, in the order the model wrote them.
struct AnswerBlock {
  enum class Kind : uint8_t { kText, kReasoning, kCall } kind = Kind::kText;
  std::string text;           // of a call: its arguments, JSON
  std::string id, name = {};  // of a call
  bool cut = false;           // the answer was as long as it may be before this one's end
};

// One of the answers to one of the prompts.
struct Choice {
  int32_t index = 0;  // as the client sees it: prompt * n + choice
  const PromptState* prompt = nullptr;
  std::string text;  // not streamed: all of it
  std::vector<TokenText>
      tokens;  // logprobs wanted: all of them; streamed completions: those whose text is held
  int64_t n_tokens = 0;
  double logprob_sum = 0;  // of its tokens, where the engine was asked for logprobs
  std::vector<float> embedding;
  std::optional<Finish> finish;
  bool opened = false;                   // streamed: its first chunk has been written
  std::unique_ptr<AnswerParser> parser;  // chats, streamed: see answer_parts()
  TextOffsets offsets;                   // completions: of echoed prompt and answer
  int64_t shown_characters = 0;          // completions, streamed: of the text that the client has been sent
  size_t shown_tokens = 0;               // /generate, streamed: tokens of the last event
  std::vector<AnswerBlock> blocks;       // formats that show them (block_format.h): those that have begun
  int64_t events = 0;                    // responses, streamed: how many the client has been sent
};

// What all JSON objects of one response share.
struct AnswerHeader {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  std::string model, fingerprint, request_id;
};

// How the usage field of a chunk looks: absent, null, or filled.
struct ChunkUsage {
  enum class Kind { kAbsent, kNull, kFilled } kind = Kind::kAbsent;
  Usage usage;
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // Appends the SSE events for one delta of one choice. The first one of a choice also appends what opens it
  // (role; echoed prompt). delta.finish, where set, is not an error: see stream_failure.
  virtual void stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                            const ChunkUsage& usage, std::string& out) const = 0;
  // The whole response body: every choice has its finish.
  virtual std::string whole(const AnswerHeader& header, std::vector<Choice>& choices,
                            const Usage& usage) const = 0;
  // Appends what follows the last delta of the last choice: by default the chunk with the usage, where
  // `usage` is filled, and [DONE].
  virtual void end_stream(const AnswerHeader& header, std::vector<Choice>& choices, const ChunkUsage& usage,
                          std::string& out) const;
  // Appends the event that ends a stream which cannot go on; nothing follows it.
  virtual void stream_error(const AnswerHeader& header, std::vector<Choice>& choices, const Status& status,
                            std::string& out) const;
  // What is sent where there is nothing to say, also before the first delta.
  virtual std::string_view keepalive() const;
  // The object name of chunks, for the chunk that carries the usage alone; formats without one have none.
  virtual const char* chunk_object() const { return ""; }
  virtual bool wants_tokens() const = 0;
  // Whether one answer that fails fails all of them.
  virtual bool whole_or_nothing() const { return false; }
  // An answer that was aborted from elsewhere ends as one that is over (kAbort), not as an error.
  virtual bool shows_aborts() const { return false; }
};

}  // namespace gapless
