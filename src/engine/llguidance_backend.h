// Grammars by llguidance, which lives in the Rust text library.
#pragma once

#include <memory>
#include <mutex>

#include "engine/tokenizer.h"
#include "sampling/grammar.h"

struct gapless_text_vocabulary;

namespace gapless {

class LlguidanceBackend : public GrammarBackend {
 public:
  // Of one grammar. Together with the limits in rust/src/grammar.rs and schema_check.rs it bounds what a
  // compilation costs.
  static constexpr size_t kMaxTextBytes = 64 << 10;

  explicit LlguidanceBackend(std::shared_ptr<const Tokenizer> tokenizer);

  // CPU work on the calling thread, a text pool's: usually some milliseconds. The first call also sorts the
  // vocabulary, which others wait for.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) const override;

 private:
  struct Free {
    void operator()(gapless_text_vocabulary* handle) const;
  };
  Status build_vocabulary() const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  mutable std::once_flag once_;
  mutable Status built_;  // once called: whether it could be built
  mutable std::unique_ptr<gapless_text_vocabulary, Free> vocabulary_;
};

}  // namespace gapless
