// How /generate answers, as SGLang's clients read it: the text so far in every event of a stream, and
// meta_info.
#pragma once

#include "server/answer.h"

namespace gapless {

struct NativeOptions {
  bool list = false;  // several prompts or answers: the body is an array, events of a stream have an index
  bool logprobs = false;              // return_logprob
  bool token_text = false;            // return_text_in_logprobs
  int32_t top_logprobs = 0;           // top_logprobs_num
  int32_t prompt_logprobs_from = -1;  // logprob_start_len; -1: none of the prompt's
};

class NativeFormat final : public AnswerFormat {
 public:
  explicit NativeFormat(NativeOptions options) : options_(options) {}
  void stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                    const ChunkUsage& usage, std::string& out) const override;
  std::string whole(const AnswerHeader& header, std::vector<Choice>& choices,
                    const Usage& usage) const override;
  const char* chunk_object() const override { return ""; }  // there are no chunks of usage alone
  bool wants_tokens() const override { return true; }
  bool shows_aborts() const override { return true; }

 private:
  const NativeOptions options_;
};

}  // namespace gapless
