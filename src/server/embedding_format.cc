#include "server/embedding_format.h"

#include <bit>
#include <cmath>

#include "base/check.h"
#include "server/answer_json.h"

namespace gapless {

namespace {

std::string base64_of(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t b = 0; b < 3; b++) group = group << 8 | (b < n ? uint8_t(bytes[i + b]) : 0);
    for (size_t digit = 0; digit < 4; digit++)
      out += digit <= n ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
  }
  return out;
}

}  // namespace

std::string base64(std::span<const float> values) {
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += char(bits >> shift & 255);
  }
  return base64_of(bytes);
}

void normalize(std::vector<float>& vector) {
  double sum = 0;
  for (const float x : vector) sum += double(x) * x;
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (float& x : vector) x = float(x / length);
}

void EmbeddingFormat::stream_delta(const AnswerHeader&, Choice&, const ChoiceDelta&, const ChunkUsage&,
                                   std::string&) const {
  CHECK(false, "an embedding is not streamed");
}

std::string EmbeddingFormat::whole(const AnswerHeader& header, std::vector<Choice>& choices,
                                   const Usage& usage) const {
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  w.key("id").string(header.id);
  w.key("object").string("list");
  w.key("created").integer(header.created);
  w.key("model").string(header.model);
  w.key("data").begin_array();
  for (Choice& choice : choices) {
    if (normalize_) normalize(choice.embedding);
    w.begin_object();
    w.key("object").string("embedding");
    w.key("index").integer(choice.index);
    w.key("embedding");
    if (base64_) {
      w.string(base64(choice.embedding));
    } else {
      w.begin_array();
      for (const float x : choice.embedding) w.number(x);
      w.end_array();
    }
    w.end_object();
  }
  w.end_array();
  w.key("usage").begin_object();
  w.key("prompt_tokens").integer(usage.prompt_tokens);
  w.key("total_tokens").integer(usage.prompt_tokens);
  w.key("prompt_tokens_details")
      .begin_object()
      .key("cached_tokens")
      .integer(usage.cached_tokens)
      .end_object();
  w.end_object().end_object();
  return out;
}

}  // namespace gapless
