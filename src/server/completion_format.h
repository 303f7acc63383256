// How /v1/completions answers, with the legacy logprobs shape: four arrays of equal length. text_offset
// counts characters of echoed prompt and answer as they are delivered, see TextOffsets. A token that is not
// valid UTF-8 by itself is written "bytes:\xe2\x80", as OpenAI does, so that the keys of top_logprobs stay
// apart.
#pragma once

#include "server/answer.h"

namespace gapless {

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(bool echo, bool logprobs, bool token_ids = false)
      : echo_(echo), logprobs_(logprobs), token_ids_(token_ids) {}
  void stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                    const ChunkUsage& usage, std::string& out) const override;
  std::string whole(const AnswerHeader& header, std::vector<Choice>& choices,
                    const Usage& usage) const override;
  const char* chunk_object() const override { return "text_completion"; }
  bool wants_tokens() const override { return logprobs_ || token_ids_; }

 private:
  const bool echo_, logprobs_, token_ids_;
};

}  // namespace gapless
