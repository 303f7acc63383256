#include "server/completion_format.h"

#include <algorithm>
#include <iterator>
#include <span>
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

// The four arrays. Tokens of the prompt go in first, then those of the answer.
class LegacyLogprobs {
 public:
  // text_end: no offset is beyond it (the tokens of a stop string have no place in the text).
  LegacyLogprobs(TextOffsets& offsets, int64_t text_end) : offsets_(offsets), text_end_(text_end) {
    tokens_w_.begin_array();
    logprobs_w_.begin_array();
    top_w_.begin_array();
    positions_w_.begin_array();
  }

  // The first token of a prompt follows nothing, so it has no logprob.
  void add_unscored(const TokenText& token) {
    add_text(token, token.text());
    logprobs_w_.null();
    top_w_.null();
  }

  void add(const TokenText& token) { add(token, token.text()); }
  // text: what it adds, where `token` does not say so itself.
  void add(const TokenText& token, std::string_view text) {
    add_text(token, text);
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
    positions_w_.end_array();
    w.key("logprobs").begin_object();
    w.key("tokens").raw(tokens_);
    w.key("token_logprobs").raw(logprobs_);
    w.key("top_logprobs").raw(top_);
    w.key("text_offset").raw(positions_);
    w.end_object();
  }

 private:
  void add_text(const TokenText& token, std::string_view text) {
    tokens_w_.string(legacy_token_text(token));
    positions_w_.integer(std::min(offsets_.next(), text_end_));
    offsets_.add(text);
  }

  // Where two tokens read alike, the likelier one counts; it comes first.
  void add_top(const TokenText& token, std::unordered_set<std::string>& seen) {
    std::string text = legacy_token_text(token);
    if (!seen.insert(text).second) return;
    top_w_.string(text);
    top_ += ':';
    top_w_.logprob(token.logprob);
  }

  TextOffsets& offsets_;
  const int64_t text_end_;
  std::string tokens_, logprobs_, top_, positions_;
  JsonWriter tokens_w_{tokens_}, logprobs_w_{logprobs_}, top_w_{top_}, positions_w_{positions_};
};

void add_prompt(LegacyLogprobs& logprobs, const PromptState& prompt) {
  const std::vector<TokenText>& tokens = prompt.accepted->prompt_tokens;
  const std::vector<TokenText>& scored = prompt.scored.tokens;
  for (size_t i = 0; i < tokens.size(); i++) {
    if (i == 0 || i > scored.size()) {
      logprobs.add_unscored(tokens[i]);
    } else {
      logprobs.add(scored[i - 1], tokens[i].text());  // the prompt as it was sent knows its text
    }
  }
}

struct Piece {
  std::string text;
  int64_t text_end = 0;  // characters of the choice's text up to here
  std::span<const TokenText> tokens;
  bool with_prompt = false;
  std::optional<Finish> finish;
  bool token_ids = false;            // wanted: those of ...
  std::span<const TokenText> fresh;  // ... the tokens that have come, and with `first` those of the prompt
  bool first = false;
};

void write_choice(JsonWriter& w, const AnswerHeader& header, Choice& choice, const Piece& piece,
                  bool arrays) {
  w.begin_object();
  w.key("index").integer(choice.index);
  w.key("text").string(piece.text);
  if (arrays) {
    LegacyLogprobs logprobs(choice.offsets, piece.text_end);
    if (piece.with_prompt) {
      add_prompt(logprobs, *choice.prompt);
      choice.offsets.restart(count_characters(choice.prompt->accepted->prompt_text));
    }
    for (const TokenText& token : piece.tokens) logprobs.add(token);
    logprobs.write(w);
  } else {
    w.key("logprobs").null();
  }
  if (piece.token_ids) {
    if (piece.first) write_prompt_token_ids(w, *choice.prompt);
    write_token_ids(w, piece.fresh);
  }
  write_finish(w, piece.finish, header.request_id);
  w.end_object();
}

// How many of the tokens that wait may be sent: those that begin in the text sent so far. Of what is held
// back nobody knows yet whether it will be text or a stop string.
size_t count_placed(const Choice& choice, bool with_prompt, int64_t text_end) {
  TextOffsets offsets = choice.offsets;
  if (with_prompt) offsets.restart(count_characters(choice.prompt->accepted->prompt_text));
  size_t n = 0;
  while (n < choice.tokens.size() && offsets.next() <= text_end) offsets.add(choice.tokens[n++].text());
  return n;
}

}  // namespace

void CompletionFormat::stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                                    const ChunkUsage& usage, std::string& out) const {
  Piece piece{.text = delta.text,
              .text_end = 0,
              .tokens = {},
              .with_prompt = echo_ && !choice.opened,
              .finish = delta.finish,
              .token_ids = token_ids_,
              .fresh = delta.tokens,
              .first = !choice.opened};
  if (piece.with_prompt) piece.text.insert(0, choice.prompt->accepted->prompt_text);
  choice.opened = true;
  choice.shown_characters += count_characters(piece.text);
  piece.text_end = choice.shown_characters;
  if (logprobs_) choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  const size_t placed =
      delta.finish ? choice.tokens.size() : count_placed(choice, piece.with_prompt, piece.text_end);
  piece.tokens = std::span(choice.tokens).first(placed);
  const bool arrays = logprobs_ && (piece.with_prompt || placed > 0);
  if (piece.text.empty() && !piece.finish && !arrays && !(token_ids_ && !delta.tokens.empty())) return;
  out += kSseData;
  JsonWriter w(out);
  begin_answer(w, header, chunk_object());
  w.key("choices").begin_array();
  write_choice(w, header, choice, piece, arrays);
  w.end_array();
  write_chunk_usage(w, usage);
  w.end_object();
  out += kSseEnd;
  choice.tokens.erase(choice.tokens.begin(), choice.tokens.begin() + ptrdiff_t(placed));
}

std::string CompletionFormat::whole(const AnswerHeader& header, std::vector<Choice>& choices,
                                    const Usage& usage) const {
  std::string out;
  JsonWriter w(out);
  begin_answer(w, header, "text_completion");
  w.key("choices").begin_array();
  for (Choice& choice : choices) {
    Piece piece{.text = choice.text,
                .text_end = 0,
                .tokens = choice.tokens,
                .with_prompt = echo_,
                .finish = choice.finish,
                .token_ids = token_ids_,
                .fresh = choice.tokens,
                .first = true};
    if (echo_) piece.text.insert(0, choice.prompt->accepted->prompt_text);
    piece.text_end = count_characters(piece.text);
    write_choice(w, header, choice, piece, logprobs_);
  }
  w.end_array();
  write_usage(w, usage);
  w.end_object();
  return out;
}

}  // namespace gapless
