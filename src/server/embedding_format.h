// How /v1/embeddings answers: one vector per input, as numbers or as the base64 of little-endian float32.
#pragma once

#include "server/answer.h"

namespace gapless {

class EmbeddingFormat final : public AnswerFormat {
 public:
  EmbeddingFormat(bool base64, bool normalize) : base64_(base64), normalize_(normalize) {}
  void stream_delta(const AnswerHeader& header, Choice& choice, const ChoiceDelta& delta,
                    const ChunkUsage& usage, std::string& out) const override;
  std::string whole(const AnswerHeader& header, std::vector<Choice>& choices,
                    const Usage& usage) const override;
  const char* chunk_object() const override { return "list"; }
  bool wants_tokens() const override { return false; }
  bool whole_or_nothing() const override { return true; }

 private:
  const bool base64_, normalize_;
};

// Divides by the Euclidean length, if that is not 0.
void normalize(std::vector<float>& vector);
std::string base64(std::span<const float> values);

}  // namespace gapless
