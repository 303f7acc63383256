// Text to token ids and back, as the model file's metadata says. Immutable once created: any thread may call
// any const method.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sampling/token_bytes.h"

struct gapless_text_tokenizer;

namespace gapless {

// Values of tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The tokenizer.ggml.* metadata of a GGUF file. An absent key is an empty list or no value. The views need to
// live until create() returns.
struct TokenizerData {
  std::string_view model;  // "gpt2" (byte-level BPE with merges) or "llama" (SentencePiece with scores)
  std::string_view pre;    // how byte-level BPE cuts words; empty: "default"
  std::vector<std::string_view> tokens = {};
  std::vector<int32_t> types = {};  // TokenType; empty: all normal
  std::vector<float> scores = {};
  std::vector<std::string_view> merges = {};  // "left right"
  std::optional<int32_t> bos_id = {}, eos_id = {}, eot_id = {}, eom_id = {}, unk_id = {};
  std::optional<bool> add_bos = {}, add_eos = {}, add_space_prefix = {};
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

// A text of which some ranges (ascending, disjoint) are a user's own words: no control token is recognised in
// or across them.
struct MarkedText {
  std::string text;
  std::vector<TextRange> user;
};

struct EncodeOptions {
  bool add_special = true;  // BOS and EOS as the model's rules say
  bool parse_special =
      true;  // spellings of control tokens become control tokens; false for text that is not trusted
};

class Tokenizer {
 public:
  // Errors: an unknown model or pre-tokenizer (lists the known ones), lists of different lengths, ids outside
  // the vocabulary. Measured: 30 ms for SmolLM2 (49,152 tokens), 0.1 s and 20 MB for Gemma 3 (262,144).
  static Result<Tokenizer> create(const TokenizerData& data);
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  // Text that is not UTF-8 is an error that names the byte. User-defined tokens (GGUF's type 4: runs of
  // newlines, HTML tags, ...) are recognised whatever parse_special says. With add_special there is exactly
  // one BOS if the model wants one, also when the text begins with its spelling. An empty text has no ids of
  // its own. 4 to 10 MB/s.
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options) const;

  // A rendered chat: control tokens outside the user's ranges only; exactly one BOS if the model wants one;
  // no EOS.
  Result<std::vector<int32_t>> encode_chat(const MarkedText& chat) const;

  // The text of `ids`, all of them in the vocabulary; bytes that are not UTF-8 become U+FFFD, as
  // IncrementalText has it.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  const TokenBytes& token_bytes() const { return token_bytes_; }
  int32_t vocab_size() const { return token_bytes_.size(); }
  bool is_control(int32_t id) const { return token_bytes_.control[size_t(id)]; }

  // -1: the model has none.
  int32_t bos_id() const { return bos_id_; }
  int32_t eos_id() const { return eos_id_; }
  // Every token that ends an answer, ascending: EOS, EOT, EOM and tokens that are spelled like one.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }

  bool add_bos() const { return add_bos_; }
  // A text begins with a space that the text itself does not have (Llama 2); decode() takes it off.
  bool add_space_prefix() const { return add_space_prefix_; }

  const gapless_text_tokenizer* ffi() const { return handle_.get(); }  // for ChatTemplate

 private:
  struct Free {
    void operator()(gapless_text_tokenizer* handle) const;
  };
  Tokenizer() = default;
  Result<std::vector<int32_t>> encode_marked(std::string_view text, std::span<const TextRange> user) const;
  void prepend_bos(std::vector<int32_t>& ids) const;

  std::unique_ptr<gapless_text_tokenizer, Free> handle_;
  TokenBytes token_bytes_;
  int32_t bos_id_ = -1, eos_id_ = -1;
  std::vector<int32_t> eos_ids_;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
};

}  // namespace gapless
