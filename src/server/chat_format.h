// How /v1/chat/completions answers.
#pragma once

#include <utility>

#include "server/answer.h"

namespace gapless {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(bool logprobs, bool token_ids, AnswerSyntax syntax)
      : logprobs_(logprobs), token_ids_(token_ids), syntax_(std::move(syntax)) {}
  void stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                    const ChunkUsage& usage, std::string& out) const override;
  std::string whole(const AnswerHeader& header, std::vector<Choice>& choices,
                    const Usage& usage) const override;
  const char* chunk_object() const override { return "chat.completion.chunk"; }
  bool wants_tokens() const override { return logprobs_ || token_ids_; }

 private:
  const bool logprobs_, token_ids_;
  const AnswerSyntax syntax_;
};

}  // namespace gapless
