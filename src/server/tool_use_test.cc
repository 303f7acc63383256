// What requests say of tools, and the grammars of calls that must come.
#include "server/tool_use.h"

#include <gtest/gtest.h>

#include "server/generation_plan.h"
#include "server/tool_grammar.h"

namespace gapless {
namespace {

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"integer"}},"required":["b","a"]}}},)"
    R"({"type":"function","function":{"name":"now","description":"the time","parameters":null,"strict":true}}])";

ModelFacts facts(std::string_view tool_template = "") {
  ModelFacts model;
  model.id = "m";
  model.vocab_size = 1000;
  model.context_length = 4096;
  model.tool_format = &tool_format_of(tool_template);
  return model;
}

Result<GenerationPlan> chat(const std::string& fields, const ModelFacts& model = facts()) {
  auto body = JsonBody::parse(R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}");
  if (!body.is_ok()) return body.status();
  return parse_chat_request(*body, model, {});
}
std::string shown(const std::string& fields) {
  auto plan = chat(fields);
  return plan ? std::get<ChatPrompt>(plan->requests[0].prompt).tools : "error: " + plan.status().message();
}
std::string grammar(const std::string& fields, const ModelFacts& model = facts()) {
  auto plan = chat(fields, model);
  if (!plan) return "error: " + plan.status().message();
  const auto& spec = plan->requests[0].grammar;
  if (!spec) return "";
  EXPECT_EQ(spec->kind, GrammarSpec::Kind::kLark);
  return spec->text;
}
void expect_refused(const std::string& fields, const std::string& param, const std::string& part) {
  const auto plan = chat(fields);
  ASSERT_FALSE(plan.is_ok()) << fields;
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.status().param(), param) << plan.status().message();
  EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status().message();
}

TEST(ToolUse, ToolsAreShownAsWrittenUnlessNoneMayBeCalled) {
  EXPECT_EQ("\"tools\":" + shown(kTools), kTools);
  EXPECT_EQ("\"tools\":" + shown(kTools + R"(,"tool_choice":"required")"), kTools);
  EXPECT_EQ(shown(kTools + R"(,"tool_choice":"none")"), "");
  EXPECT_EQ(shown(R"("tools":[])"), "");
  EXPECT_EQ(shown(R"("tools":null,"tool_choice":null)"), "");
}

TEST(ToolUse, OnlyCallsThatMustComeAreLimited) {
  EXPECT_EQ(grammar(kTools), "");
  EXPECT_EQ(grammar(kTools + R"(,"tool_choice":"none")"), "");
  EXPECT_EQ(grammar(kTools + R"(,"tool_choice":"auto","parallel_tool_calls":false)"), "");
}

const std::string kAddRule =
    R"(call_0: "{\"name\": \"add\", \"arguments\": " arguments_0 "}")"
    "\n"
    R"(arguments_0: %json {"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"integer"}},"required":["b","a"],"additionalProperties":false})"
    "\n";

TEST(ToolUse, GrammarsOfForcedCalls) {
  const std::string now_rule =
      R"(call_1: "{\"name\": \"now\", \"arguments\": " arguments_1 "}")"
      "\n"
      R"(arguments_1: %json {"properties":{},"type":"object","additionalProperties":false})"
      "\n";
  EXPECT_EQ(grammar(kTools + R"(,"tool_choice":"required")"),
            "start: calls\n"
            R"(calls: one ("\n" one){0,15})"
            "\n"
            R"(one: "<tool_call>\n" call "\n</tool_call>")"
            "\ncall: call_0 | call_1\n" +
                kAddRule + now_rule)
      << "arguments in the schema's order";
  const std::string one_add =
      "start: calls\ncalls: one\n"
      R"(one: "<tool_call>\n" call "\n</tool_call>")"
      "\ncall: call_0\n" +
      kAddRule;
  EXPECT_EQ(grammar(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"add"}})"), one_add);
  EXPECT_NE(grammar(kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)").find("calls: one\n"),
            std::string::npos);
  const std::string mistral = grammar(kTools + R"(,"tool_choice":"required")", facts("[TOOL_CALLS]"));
  EXPECT_NE(mistral.find(R"(calls: "[" one (", " one){0,15} "]")"
                         "\none: call\n"),
            std::string::npos)
      << mistral;
  const std::string llama = grammar(kTools + R"(,"tool_choice":"required")", facts("<|python_tag|>"));
  EXPECT_NE(llama.find(R"("{\"name\": \"add\", \"parameters\": ")"), std::string::npos) << llama;
}

TEST(ToolUse, WhatASchemaLeavesOpenIsClosedWhereThatIsItsToSay) {
  const auto rule = [](const std::string& parameters) {
    const ToolUse use{.functions = {{"f", parameters}},
                      .choice = ToolUse::Choice::kRequired,
                      .only = "f",
                      .parallel = true};
    const std::string text = calls_grammar(use, *facts().tool_format, "").text;
    return text.find("\"additionalProperties\":false") != std::string::npos;
  };
  EXPECT_TRUE(rule(R"({"properties":{"a":{}}})"));
  EXPECT_FALSE(rule(R"({"type":"object"})")) << "any object";
  EXPECT_FALSE(rule(R"({"properties":{"a":{}},"additionalProperties":true})"));
  EXPECT_FALSE(rule(R"({"properties":{"a":{}},"allOf":[{"properties":{"b":{}}}]})"));
}

TEST(ToolUse, ACallOrASchema) {
  ToolUse use{.functions = {{"now", ""}}, .choice = ToolUse::Choice::kAuto, .only = "", .parallel = true};
  GenerateRequest request;
  request.grammar = GrammarSpec{GrammarSpec::Kind::kJsonSchema, R"({"type":"object"})"};
  const auto syntax = apply_tools(use, facts(), request);
  ASSERT_TRUE(syntax.is_ok());
  EXPECT_FALSE(syntax->only_calls);
  EXPECT_TRUE(request.grammar->text.starts_with("start: calls | text\n")) << request.grammar->text;
  EXPECT_NE(request.grammar->text.find("\ntext: %json {\"type\":\"object\"}\n"), std::string::npos);
  for (const auto choice : {ToolUse::Choice::kAuto, ToolUse::Choice::kRequired}) {
    use.choice = choice;
    request.grammar = GrammarSpec{GrammarSpec::Kind::kRegex, "a+"};
    EXPECT_EQ(apply_tools(use, facts(), request).status().param(), "tool_choice");
  }
}

TEST(ToolUse, WrongShapesAreRefused) {
  const auto tool = [](const std::string& function) {
    return R"("tools":[{"type":"function","function":)" + function + "}]";
  };
  expect_refused(R"("tools":{})", "tools", "an array, got an object");
  expect_refused(R"("tools":["add"])", "tools", "tools[0] must be an object");
  expect_refused(R"("tools":[{"type":"function"}])", "tools", "tools[0].function must be an object");
  expect_refused(R"("tools":[{"type":"web_search","function":{"name":"f"}}])", "tools", "tools[0].type");
  expect_refused(tool("{}"), "tools", "tools[0].function.name");
  expect_refused(tool(R"({"name":5})"), "tools", "tools[0].function.name");
  expect_refused(tool(R"({"name":"a\"b"})"), "tools", "tools[0].function.name");
  expect_refused(tool("{\"name\":\"" + std::string(129, 'a') + "\"}"), "tools", "1 to 128");
  expect_refused(tool(R"({"name":"f","description":1})"), "tools", "tools[0].function.description");
  expect_refused(tool(R"({"name":"f","parameters":[]})"), "tools", "tools[0].function.parameters");
  expect_refused(tool(R"({"name":"f","parameters":{"type":"array"}})"), "tools",
                 "tools[0].function.parameters.type");
  expect_refused(
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])",
      "tools", "tools[1].function.name is \"f\"");
  expect_refused(R"("tool_choice":"required")", "tool_choice", "there are no tools");
  for (const char* choice :
       {"\"maybe\"", "5", "{}", R"({"type":"function"})", R"({"type":"function","function":{"name":1}})",
        R"({"type":"function","function":{"name":"sub"}})", R"({"type":"allowed_tools","allowed_tools":{}})"})
    expect_refused(kTools + ",\"tool_choice\":" + choice, "tool_choice", "tool_choice");
  expect_refused(kTools + R"(,"parallel_tool_calls":"no")", "parallel_tool_calls", "boolean");
  expect_refused(R"("separate_reasoning":1)", "separate_reasoning", "boolean");
}

TEST(ToolUse, LargeToolsAreRefusedBeforeTheyCost) {
  std::string many, members;
  for (int i = 0; i <= 1024; i++) {
    many += fmt::format(R"({}{{"type":"function","function":{{"name":"f{}"}}}})", i ? "," : "", i);
    members += fmt::format(R"({}"k{}":0)", i ? "," : "", i);
  }
  expect_refused("\"tools\":[" + many + "]", "tools", "at most 1024");
  expect_refused(R"("tools":[{"type":"function","function":{"name":"f","parameters":{)" + members + "}}}]",
                 "tools", "an object of 1025 members");
}

}  // namespace
}  // namespace gapless
