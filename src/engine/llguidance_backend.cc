#include "engine/llguidance_backend.h"

#include <vector>

#include "engine/gbnf.h"
#include "engine/text_ffi.h"

namespace gapless {
namespace {

class LlguidanceMatcher : public GrammarMatcher {
 public:
  explicit LlguidanceMatcher(gapless_text_matcher* handle) : handle_(handle) {}

  Status fill_mask(std::span<uint32_t> allowed) override {
    std::string error;
    Status status = ffi_status(
        gapless_text_matcher_mask(handle_.get(), allowed.data(), allowed.size(), ffi_sink(error)), error);
    if (status.code() != StatusCode::kInvalidArgument) return status;
    return Status::invalid("the grammar is too complex to say what may follow here, simplify it: '{}'",
                           status.message());
  }
  Status accept(int32_t token) override {
    std::string error;
    return ffi_status(gapless_text_matcher_accept(handle_.get(), uint32_t(token), ffi_sink(error)), error);
  }
  bool is_complete() const override { return gapless_text_matcher_is_complete(handle_.get()) != 0; }

 private:
  struct Free {
    void operator()(gapless_text_matcher* handle) const { gapless_text_matcher_free(handle); }
  };
  std::unique_ptr<gapless_text_matcher, Free> handle_;
};

class LlguidanceGrammar : public Grammar {
 public:
  explicit LlguidanceGrammar(gapless_text_grammar* handle) : handle_(handle) {}

  std::unique_ptr<GrammarMatcher> new_matcher() const override {
    gapless_text_matcher* matcher = nullptr;
    std::string error;
    const Status status =
        ffi_status(gapless_text_matcher_new(handle_.get(), &matcher, ffi_sink(error)), error);
    CHECK(status.is_ok(), "{}", status.message());
    return std::make_unique<LlguidanceMatcher>(matcher);
  }

 private:
  struct Free {
    void operator()(gapless_text_grammar* handle) const { gapless_text_grammar_free(handle); }
  };
  std::unique_ptr<gapless_text_grammar, Free> handle_;
};

gapless_text_grammar_kind ffi_kind(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::kJsonSchema:
      return GAPLESS_TEXT_JSON_SCHEMA;
    case GrammarSpec::Kind::kRegex:
      return GAPLESS_TEXT_REGEX;
    case GrammarSpec::Kind::kLark:
    case GrammarSpec::Kind::kGbnf:  // translated
      break;
  }
  return GAPLESS_TEXT_LARK;
}

}  // namespace

void LlguidanceBackend::Free::operator()(gapless_text_vocabulary* handle) const {
  gapless_text_vocabulary_free(handle);
}

LlguidanceBackend::LlguidanceBackend(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

Status LlguidanceBackend::build_vocabulary() const {
  const TokenBytes& bytes = tokenizer_->token_bytes();
  std::vector<gapless_text_str> tokens;
  std::vector<uint8_t> is_text;
  for (int32_t id = 0; id < bytes.size(); ++id) {
    tokens.push_back(ffi_text(bytes.of(id)));
    is_text.push_back(!bytes.control[size_t(id)]);
  }
  const std::vector<uint32_t> eos(tokenizer_->eos_ids().begin(), tokenizer_->eos_ids().end());
  gapless_text_vocabulary* handle = nullptr;
  std::string error;
  RETURN_IF_ERROR(ffi_status(gapless_text_vocabulary_new(tokens.data(), is_text.data(), tokens.size(),
                                                         eos.data(), eos.size(), &handle, ffi_sink(error)),
                             error));
  vocabulary_.reset(handle);
  return {};
}

Result<std::shared_ptr<const Grammar>> LlguidanceBackend::compile(const GrammarSpec& spec) const {
  if (spec.text.size() > kMaxTextBytes)
    return Status::invalid("the grammar has {} bytes, at most {} are allowed", spec.text.size(),
                           kMaxTextBytes);
  if (spec.kind == GrammarSpec::Kind::kGbnf) {
    ASSIGN_OR_RETURN(std::string lark, lark_of_gbnf(spec.text));
    return compile({GrammarSpec::Kind::kLark, std::move(lark)});
  }
  std::call_once(once_, [this] { built_ = build_vocabulary(); });
  RETURN_IF_ERROR(built_);
  gapless_text_grammar* grammar = nullptr;
  std::string error;
  RETURN_IF_ERROR(ffi_status(gapless_text_grammar_new(vocabulary_.get(), ffi_kind(spec.kind),
                                                      ffi_text(spec.text), &grammar, ffi_sink(error)),
                             error));
  return std::shared_ptr<const Grammar>(std::make_shared<LlguidanceGrammar>(grammar));
}

}  // namespace gapless
