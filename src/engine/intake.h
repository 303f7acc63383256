// From what a client asked to what the scheduler runs: template, tokenizer, limits. Immutable after
// construction; any thread (runs on the text pool).
#pragma once

#include <memory>
#include <optional>

#include "engine/chat_template.h"
#include "engine/engine_api.h"
#include "engine/tokenizer.h"
#include "sampling/grammar.h"
#include "scheduler/validate.h"

namespace gapless {

class Intake {
 public:
  // chat_template empty: the model has none, and `no_template_reason` says what to do. The references must
  // outlive the intake.
  Intake(const Tokenizer& tokenizer, const ChatTemplate* chat_template, const GrammarBackend& grammars,
         const SchedulerConfig& config);

  struct Admitted {
    std::unique_ptr<Request> request;
    Accepted accepted;
  };
  // Everything that can be refused before the scheduler sees the request is refused here, with the field, the
  // value and the limit.
  // random_seed: used when the request has none.
  Result<Admitted> admit(RequestId id, const GenerateRequest& request, uint64_t random_seed) const;
  Result<RenderedChat> render(const ChatPrompt& chat) const;

 private:
  Result<std::vector<int32_t>> prompt_ids(const Prompt& prompt) const;
  Status check_token_ids(const std::vector<int32_t>& ids, const char* field) const;
  Status check_sampling(const SamplingParams& params) const;
  // null: none was asked for.
  Result<std::shared_ptr<const Grammar>> compile_grammar(const GenerateRequest& request) const;
  // Output tokens the request may have: what it asked for, clipped to the context and the KV pool.
  Result<int32_t> output_limit(int32_t prompt_tokens, std::optional<int32_t> max_tokens) const;
  void mark_text(Accepted& accepted, bool skip_special) const;
  bool opens_reasoning(const std::vector<int32_t>& ids) const;
  Accepted describe(const GenerateRequest& request, const std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_template_;
  const GrammarBackend& grammars_;
  const SchedulerConfig& config_;
};

}  // namespace gapless
