// What limits an answer to a language: a JSON schema, a regular expression, a grammar. The seam between
// those who ask (server, engine), the library that knows the languages (engine/), and the scheduler, which
// advances one matcher per answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace gapless {

// As a client asked for it; the text was not looked at yet.
struct GrammarSpec {
  enum class Kind : uint8_t {
    kJsonSchema,  // any JSON object: {"type": "object"}
    kRegex,       // of the whole answer
    kLark,        // llguidance's dialect, which can embed JSON schemas and regular expressions
    kGbnf,        // llama.cpp's: rules written with ::=, the answer is a `root`
  } kind = Kind::kJsonSchema;
  std::string text;
  friend bool operator==(const GrammarSpec&, const GrammarSpec&) = default;
};

// The state of one answer. One thread at a time. Its answers are a function of the grammar and the tokens so
// far, so that a retracted request goes on with the one it has.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;
  // The tokens that may come next (mask_words(vocab) words, sampling_info.h); end-of-generation tokens
  // where the answer may end. An error: a limit of the library was hit, and the answer cannot go on.
  virtual Status fill_mask(std::span<uint32_t> allowed) = 0;
  // A token that fill_mask allowed.
  virtual Status accept(int32_t token) = 0;
  // The answer is whole and nothing may follow it but its end.
  virtual bool is_complete() const = 0;
};

// Compiled. Immutable; any thread. Outlives its matchers.
class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual std::unique_ptr<GrammarMatcher> new_matcher() const = 0;
};

// Any thread, concurrently. An error is the client's: what of the text cannot be used and why.
class GrammarBackend {
 public:
  virtual ~GrammarBackend() = default;
  virtual Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) const = 0;
};

}  // namespace gapless
