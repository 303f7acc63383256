#include "server/native_format.h"

#include <span>

#include "server/answer_json.h"

namespace gapless {

namespace {

// One answer, whole or as far as it is.
class NativeWriter {
 public:
  NativeWriter(JsonWriter& w, const AnswerHeader& header, const NativeOptions& options, const Choice& choice)
      : w_(w), header_(header), options_(options), choice_(choice), prompt_(*choice.prompt) {}

  void write(bool with_index) {
    w_.begin_object();
    w_.key("text").string(choice_.text);
    w_.key("output_ids").begin_array();
    for (const TokenText& token : choice_.tokens) w_.integer(token.id);
    w_.end_array();
    write_meta_info();
    if (with_index) w_.key("index").integer(choice_.index);
    w_.end_object();
  }

 private:
  void write_meta_info() {
    w_.key("meta_info").begin_object();
    w_.key("id").string(prompt_.name);
    w_.key("finish_reason");
    write_reason();
    w_.key("prompt_tokens").integer(int64_t(prompt_.accepted->prompt_ids.size()));
    w_.key("completion_tokens").integer(choice_.n_tokens);
    w_.key("cached_tokens").integer(prompt_.usage.cached_tokens);
    if (options_.logprobs) write_logprobs();
    w_.end_object();
  }

  void write_reason() {
    if (!choice_.finish) {
      w_.null();
      return;
    }
    const Finish& finish = *choice_.finish;
    w_.begin_object();
    switch (finish.reason) {
      case FinishReason::kStop:
        w_.key("type").string("stop").key("matched");
        write_matched(finish);
        break;
      case FinishReason::kLength:
        w_.key("type").string("length").key("length").integer(choice_.n_tokens);
        break;
      case FinishReason::kAbort:
        w_.key("type").string("abort").key("message").string("the request was aborted");
        break;
      case FinishReason::kError:
        w_.key("type").string("abort");
        write_error(w_, finish.status, header_.request_id);
        break;
    }
    w_.end_object();
  }

  void write_matched(const Finish& finish) {
    if (const auto* token = std::get_if<int32_t>(&finish.matched)) {
      w_.integer(*token);
    } else if (const auto* text = std::get_if<std::string>(&finish.matched)) {
      w_.string(*text);
    } else {
      w_.null();
    }
  }

  void write_logprobs() {
    const std::vector<int32_t>& ids = prompt_.accepted->prompt_ids;
    const std::vector<TokenText>& scored = prompt_.scored.tokens;
    const bool from_prompt = options_.prompt_logprobs_from >= 0;
    const size_t from =
        from_prompt ? std::min(size_t(options_.prompt_logprobs_from), ids.size()) : ids.size();
    // The first one is there without a logprob: nothing that was asked for comes before it.
    const auto rest = std::span(scored).subspan(std::min(from, scored.size()));
    w_.key("input_token_logprobs").begin_array();
    if (from < ids.size()) write_unscored(from);
    for (const TokenText& token : rest) write_token(token);
    w_.end_array();
    w_.key("output_token_logprobs").begin_array();
    for (const TokenText& token : choice_.tokens) write_token(token);
    w_.end_array();
    if (options_.top_logprobs == 0) return;
    w_.key("input_top_logprobs").begin_array();
    if (from < ids.size()) w_.null();
    for (const TokenText& token : rest) write_top(token);
    w_.end_array();
    w_.key("output_top_logprobs").begin_array();
    for (const TokenText& token : choice_.tokens) write_top(token);
    w_.end_array();
  }

  void write_unscored(size_t at) {
    const std::vector<TokenText>& tokens = prompt_.accepted->prompt_tokens;
    w_.begin_array().null().integer(prompt_.accepted->prompt_ids[at]);
    write_text(at < tokens.size() ? token_text(tokens[at]) : "");
    w_.end_array();
  }

  void write_token(const TokenText& token) {
    w_.begin_array().logprob(token.logprob).integer(token.id);
    write_text(token_text(token));
    w_.end_array();
  }

  void write_text(const std::string& text) {
    if (options_.token_text) {
      w_.string(text);
    } else {
      w_.null();
    }
  }

  void write_top(const TokenText& token) {
    w_.begin_array();
    for (const TokenText& top : token.top) write_token(top);
    w_.end_array();
  }

  JsonWriter& w_;
  const AnswerHeader& header_;
  const NativeOptions& options_;
  const Choice& choice_;
  const PromptState& prompt_;
};

// Every event repeats what came before it. A new token may cost this many list entries: beyond it events get
// fewer, with several new tokens each.
constexpr size_t kEntriesPerToken = 4096;

size_t entries(const NativeOptions& options, const Choice& choice) {
  const size_t each = options.logprobs ? size_t(2 + options.top_logprobs) : 1;
  return choice.tokens.size() * each + choice.prompt->scored.tokens.size() * (each - 1);
}

}  // namespace

void NativeFormat::stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                                const ChunkUsage& /*usage*/, std::string& out) const {
  choice.text += delta.text;
  choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  const size_t fresh = choice.tokens.size() - choice.shown_tokens;
  if (!delta.finish && fresh * kEntriesPerToken < entries(options_, choice)) return;
  choice.shown_tokens = choice.tokens.size();
  out += kSseData;
  JsonWriter w(out);
  NativeWriter(w, header, options_, choice).write(options_.list);
  out += kSseEnd;
}

std::string NativeFormat::whole(const AnswerHeader& header, std::vector<Choice>& choices,
                                const Usage& /*usage*/) const {
  std::string out;
  JsonWriter w(out);
  if (options_.list) w.begin_array();
  for (const Choice& choice : choices) NativeWriter(w, header, options_, choice).write(/*with_index=*/false);
  if (options_.list) w.end_array();
  return out;
}

}  // namespace gapless
