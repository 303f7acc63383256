// What a generation request's body asks for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/json_body.h"

namespace gapless {

struct GenerationPlan {
  std::vector<GenerateRequest> requests;  // one per prompt, not empty
  std::vector<std::string> names;         // one per prompt, or none: made from the answer's id
  int32_t n = 1;                          // answers per prompt
  int32_t returned = 1;                   // of these: n, or fewer with best_of
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;  // the format writes the ids of prompt and answer
  const char* id_prefix = "";
  const char* prompt_field = "prompt";  // what a message about the prompt is about
  AnswerSyntax syntax;                  // of a chat: what its answers may hold
  std::unique_ptr<AnswerFormat> format;
};

// What limits a request beyond its own fields.
struct RequestLimits {
  int32_t max_completion_logprobs = 5;
  bool strict_model = false;
};

// Any thread. Errors are 400s (404 for an unknown model) that name the field.
using PlanParser = std::function<Result<GenerationPlan>(const JsonBody& body, const ModelFacts& model,
                                                        const RequestLimits& limits)>;

Result<GenerationPlan> parse_chat_request(const JsonBody& body, const ModelFacts& model,
                                          const RequestLimits& limits);
Result<GenerationPlan> parse_embedding_request(const JsonBody& body, const ModelFacts& model,
                                               const RequestLimits& limits);
Result<GenerationPlan> parse_completion_request(const JsonBody& body, const ModelFacts& model,
                                                const RequestLimits& limits);
Result<GenerationPlan> parse_native_request(const JsonBody& body, const ModelFacts& model,
                                            const RequestLimits& limits);

}  // namespace gapless
