#include "server/completion_format.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "server/answer_json.h"

namespace gapless {

namespace {

std::string legacy_token_text(const TokenText& token) {
  if (is_valid_utf8(token.bytes)) return token.bytes;
  std::string text = "bytes:";
  for (const char c : token.bytes)
    fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// The four arrays. Tokens of the prompt go in first, then those of the answer.
class LegacyLogprobs {
 public:
  explicit LegacyLogprobs(int64_t& code_points) : code_points_(code_points) {
    tokens_w_.begin_array();
    logprobs_w_.begin_array();
    top_w_.begin_array();
    offsets_w_.begin_array();
  }

  // The first token of a prompt follows nothing, so it has no logprob.
  void add_unscored(const TokenText& token) {
    add_text(token);
    logprobs_w_.null();
    top_w_.null();
  }

  void add(const TokenText& token) {
    add_text(token);
    logprobs_w_.logprob(token.logprob);
    top_w_.begin_object();
    std::unordered_set<std::string> seen;
    for (const TokenText& top : token.top) add_top(top, seen);
    add_top(token, seen);
    top_w_.end_object();
  }

  void write(JsonWriter& w) {
    tokens_w_.end_array();
    logprobs_w_.end_array();
    top_w_.end_array();
    offsets_w_.end_array();
    w.key("logprobs").begin_object();
    w.key("tokens").raw(tokens_);
    w.key("token_logprobs").raw(logprobs_);
    w.key("top_logprobs").raw(top_);
    w.key("text_offset").raw(offsets_);
    w.end_object();
  }

 private:
  void add_text(const TokenText& token) {
    tokens_w_.string(legacy_token_text(token));
    const bool inside = !token.bytes.empty() && is_continuation(token.bytes[0]);
    offsets_w_.integer(std::max<int64_t>(0, code_points_ - inside));
    code_points_ +=
        std::count_if(token.bytes.begin(), token.bytes.end(), [](char c) { return !is_continuation(c); });
  }

  // Where two tokens read alike, the likelier one counts; it comes first.
  void add_top(const TokenText& token, std::unordered_set<std::string>& seen) {
    std::string text = legacy_token_text(token);
    if (!seen.insert(text).second) return;
    top_w_.string(text);
    top_ += ':';
    top_w_.logprob(token.logprob);
  }

  int64_t& code_points_;
  std::string tokens_, logprobs_, top_, offsets_;
  JsonWriter tokens_w_{tokens_}, logprobs_w_{logprobs_}, top_w_{top_}, offsets_w_{offsets_};
};

void add_prompt(LegacyLogprobs& logprobs, const PromptState& prompt) {
  const std::vector<TokenText>& tokens = prompt.accepted->prompt_tokens;
  const std::vector<TokenText>& scored = prompt.scored.tokens;
  for (size_t i = 0; i < tokens.size(); i++) {
    if (i == 0 || i > scored.size()) {
      logprobs.add_unscored(tokens[i]);
    } else {
      logprobs.add(scored[i - 1]);
    }
  }
}

struct Piece {
  std::string text;
  const std::vector<TokenText>* tokens = nullptr;
  bool with_prompt = false;
  std::optional<Finish> finish;
};

void write_choice(JsonWriter& w, const AnswerHeader& header, Choice& choice, const Piece& piece,
                  bool arrays) {
  w.begin_object();
  w.key("index").integer(choice.index);
  w.key("text").string(piece.text);
  if (arrays) {
    LegacyLogprobs logprobs(choice.code_points);
    if (piece.with_prompt) add_prompt(logprobs, *choice.prompt);
    for (const TokenText& token : *piece.tokens) logprobs.add(token);
    logprobs.write(w);
  } else {
    w.key("logprobs").null();
  }
  write_finish(w, piece.finish, header.request_id);
  w.end_object();
}

}  // namespace

void CompletionFormat::stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                                    const ChunkUsage& usage, std::string& out) const {
  Piece piece{.text = delta.text,
              .tokens = &delta.tokens,
              .with_prompt = echo_ && !choice.opened,
              .finish = delta.finish};
  if (piece.with_prompt) piece.text.insert(0, choice.prompt->accepted->prompt_text);
  choice.opened = true;
  const bool arrays = logprobs_ && (piece.with_prompt || !delta.tokens.empty());
  if (piece.text.empty() && !piece.finish && !arrays) return;
  out += kSseData;
  JsonWriter w(out);
  begin_answer(w, header, chunk_object());
  w.key("choices").begin_array();
  write_choice(w, header, choice, piece, arrays);
  w.end_array();
  write_chunk_usage(w, usage);
  w.end_object();
  out += kSseEnd;
}

std::string CompletionFormat::whole(const AnswerHeader& header, std::vector<Choice>& choices,
                                    const Usage& usage) const {
  std::string out;
  JsonWriter w(out);
  begin_answer(w, header, "text_completion");
  w.key("choices").begin_array();
  for (Choice& choice : choices) {
    Piece piece{.text = choice.text, .tokens = &choice.tokens, .with_prompt = echo_, .finish = choice.finish};
    if (echo_) piece.text.insert(0, choice.prompt->accepted->prompt_text);
    write_choice(w, header, choice, piece, logprobs_);
  }
  w.end_array();
  write_usage(w, usage);
  w.end_object();
  return out;
}

}  // namespace gapless
