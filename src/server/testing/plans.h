// Bodies through a parser without a server, for tests of what endpoints accept and refuse.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "server/generation_plan.h"

namespace gapless::testing {

// body: JSON that at least parses.
inline Result<GenerationPlan> parse_plan(const PlanParser& parser, const std::string& body) {
  const Result<JsonBody> parsed = JsonBody::parse(body);
  CHECK(parsed.is_ok(), "{}", parsed.status().message());
  ModelFacts model;
  model.id = "m";
  model.vocab_size = 1000;
  model.context_length = 4096;
  return parser(*parsed, model, {});
}

// What the template is given; the body must be accepted.
inline ChatPrompt parse_chat(const PlanParser& parser, const std::string& body) {
  const Result<GenerationPlan> plan = parse_plan(parser, body);
  CHECK(plan.is_ok(), "{}", plan.status().message());
  return std::get<ChatPrompt>(plan->requests.at(0).prompt);
}

// A 400 that names the field and says `part`.
inline void expect_refused(const Result<GenerationPlan>& plan, const std::string& param,
                           const std::string& part) {
  ASSERT_FALSE(plan.is_ok()) << param << ": " << part;
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.status().param(), param) << plan.status().message();
  EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status().message();
}

}  // namespace gapless::testing
