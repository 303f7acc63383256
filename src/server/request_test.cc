// What the two generation endpoints accept and refuse, without a server.
#include <gtest/gtest.h>

#include "server/generation_plan.h"

namespace gapless {
namespace {

using nlohmann::json;

ModelFacts facts() {
  ModelFacts model;
  model.id = "m";
  model.vocab_size = 1000;
  model.context_length = 4096;
  return model;
}

Result<GenerationPlan> completion(const std::string& fields, RequestLimits limits = {}) {
  auto body = JsonBody::parse("{\"prompt\":\"hi\"" + (fields.empty() ? "" : "," + fields) + "}");
  if (!body.is_ok()) return body.status();
  return parse_completion_request(*body, facts(), limits);
}
Result<GenerationPlan> with_prompt(const std::string& prompt) {
  auto body = JsonBody::parse("{\"prompt\":" + prompt + "}");
  if (!body.is_ok()) return body.status();
  return parse_completion_request(*body, facts(), {});
}
Result<GenerationPlan> chat(const std::string& fields,
                            const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  auto body = JsonBody::parse("{\"messages\":" + messages + (fields.empty() ? "" : "," + fields) + "}");
  if (!body.is_ok()) return body.status();
  return parse_chat_request(*body, facts(), {});
}

// Refused as a 400 that names the field.
void expect_refused(const Result<GenerationPlan>& plan, const std::string& param,
                    const std::string& part = "", const std::string& code = "") {
  ASSERT_FALSE(plan.is_ok()) << param;
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.status().param(), param) << plan.status().message();
  EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status().message();
  EXPECT_EQ(plan.status().error_code(), code) << plan.status().message();
}

TEST(CompletionRequest, Defaults) {
  const auto plan = completion("");
  ASSERT_TRUE(plan.is_ok());
  ASSERT_EQ(plan.value().requests.size(), 1u);
  const GenerateRequest& r = plan.value().requests[0];
  EXPECT_EQ(r.max_tokens, 16);
  EXPECT_FALSE(r.seed.has_value());
  EXPECT_EQ(r.sampling.temperature, 1.0f);
  EXPECT_EQ(r.sampling.top_logprobs, -1);
  EXPECT_TRUE(std::get<TextPrompt>(r.prompt).add_special);
  EXPECT_TRUE(std::get<TextPrompt>(r.prompt).parse_special);
  EXPECT_FALSE(plan.value().stream);
}

TEST(CompletionRequest, EveryFieldArrives) {
  const auto plan = completion(
      R"("temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"frequency_penalty":-1,"presence_penalty":1.5,
    "repetition_penalty":1.25,"seed":-1,"stop":["a","b"],"stop_token_ids":[5,6],"min_tokens":2,"max_tokens":9,"ignore_eos":true,
    "skip_special_tokens":false,"logit_bias":{"7":-100,"3":1.5},"n":3,"echo":true,"logprobs":0,"cache_salt":"s","stream":true,
    "stream_options":{"include_usage":true,"continuous_usage_stats":true},"add_special_tokens":false,
    "user":"u","metadata":{"a":[1]},"surprise":{"x":null},"suffix":null,"best_of":3)");
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const GenerateRequest& r = plan.value().requests[0];
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_EQ(r.sampling.top_k, 40);
  EXPECT_EQ(r.sampling.min_p, 0.1f);
  EXPECT_EQ(r.sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(r.sampling.presence_penalty, 1.5f);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.25f);
  EXPECT_EQ(r.seed, uint64_t(-1));
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.sampling.stop_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(r.sampling.min_tokens, 2);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_TRUE(r.sampling.ignore_eos);
  EXPECT_FALSE(r.skip_special_tokens);
  EXPECT_EQ(r.sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{3, 1.5f}, {7, -100.0f}}));
  EXPECT_EQ(r.n, 3);
  EXPECT_TRUE(r.want_prompt_text);
  EXPECT_TRUE(r.want_prompt_logprobs);
  EXPECT_EQ(r.sampling.top_logprobs, 0);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_FALSE(std::get<TextPrompt>(r.prompt).add_special);
  EXPECT_TRUE(plan.value().stream && plan.value().include_usage && plan.value().continuous_usage);
}

TEST(CompletionRequest, NullIsAbsent) {
  const auto plan = completion(
      R"("temperature":null,"max_tokens":null,"stop":null,"seed":null,"logit_bias":null,"n":null,"stream":null,
    "stream_options":null,"logprobs":null,"echo":null,"model":null,"response_format":null)");
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan.value().requests[0].max_tokens, 16);
}

TEST(CompletionRequest, PromptForms) {
  EXPECT_EQ(with_prompt(R"(["a","b"])").value().requests.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(with_prompt("[1,2]").value().requests[0].prompt),
            (std::vector<int32_t>{1, 2}));
  const auto lists = with_prompt("[[1],[2,3]]");
  ASSERT_EQ(lists.value().requests.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(lists.value().requests[1].prompt), (std::vector<int32_t>{2, 3}));
}

TEST(CompletionRequest, A_PA_1_EmptyPromptsAreLeftToTheModelsBos) {
  for (const char* prompt : {R"("")", R"([""])", "[]", "[[]]"}) {
    const auto plan = with_prompt(prompt);
    ASSERT_TRUE(plan.is_ok()) << prompt;
    ASSERT_EQ(plan.value().requests.size(), 1u);
    EXPECT_EQ(std::get<TextPrompt>(plan.value().requests[0].prompt).text, "");
    EXPECT_TRUE(std::get<TextPrompt>(plan.value().requests[0].prompt).add_special);
  }
  expect_refused(with_prompt("null"), "prompt", "missing");
  expect_refused(with_prompt("3"), "prompt", "string or an array");
}

TEST(CompletionRequest, CacheSaltsAreShort) {
  const auto salted = [](size_t bytes) {
    return completion(fmt::format(R"("cache_salt":"{}")", std::string(bytes, 'a')));
  };
  EXPECT_EQ(salted(256).value().requests[0].cache_salt.size(), 256u);
  expect_refused(salted(257), "cache_salt", "at most 256");
}

TEST(CompletionRequest, A_PA_2_MaxTokensZeroIsAllowedNegativeIsNot) {
  EXPECT_EQ(completion(R"("max_tokens":0,"echo":true,"logprobs":1)").value().requests[0].max_tokens, 0);
  expect_refused(completion(R"("max_tokens":-1)"), "max_tokens", "got -1");
}

TEST(CompletionRequest, A_PA_5_TokenIdsAreChecked) {
  for (const char* prompt : {"[999999]", "[-1]", "[[-1]]", "[1.5]", R"([1,"a"])", R"(["a",1])", "[[1],2]",
                             "[[[1]]]", "[true]", "[[1,1000]]", "[null]", "[9223372036854775808]"}) {
    expect_refused(with_prompt(prompt), "prompt");
  }
  EXPECT_TRUE(with_prompt("[0,999]").is_ok());
}

TEST(CompletionRequest, A_PA_6_LogitBias) {
  for (const char* bias : {R"({"191222":-100})", R"({"x":1})", R"({"1":101})", R"({"1":"2"})", R"({"-1":1})",
                           R"({"01":1})", R"({"":1})", R"({"99999999999":1})", "[1]", "3"}) {
    expect_refused(completion(std::string(R"("logit_bias":)") + bias), "logit_bias");
  }
  EXPECT_TRUE(completion(R"("logit_bias":{})").value().requests[0].sampling.logit_bias.empty());
  EXPECT_TRUE(completion(R"("logit_bias":{"0":-100,"999":100})").is_ok());
}

TEST(CompletionRequest, A_PA_7_WildSamplerValuesNameFieldAndRange) {
  expect_refused(completion(R"("temperature":999999)"), "temperature", "at most 2, got 999999");
  expect_refused(completion(R"("temperature":-1)"), "temperature", "at least 0");
  expect_refused(completion(R"("temperature":"NaN")"), "temperature", "must be a number");
  for (const char* value : {"-1", "0", "1.1"})
    expect_refused(completion(std::string(R"("top_p":)") + value), "top_p", "greater than 0 and at most 1");
  expect_refused(completion(R"("top_k":0.01)"), "top_k", "must be an integer");
  expect_refused(completion(R"("top_k":-2)"), "top_k");
  expect_refused(completion(R"("repetition_penalty":0)"), "repetition_penalty");
  expect_refused(completion(R"("frequency_penalty":2.5)"), "frequency_penalty");
  expect_refused(completion(R"("presence_penalty":-2.5)"), "presence_penalty");
  expect_refused(completion(R"("min_p":1.5)"), "min_p");
  EXPECT_EQ(completion(R"("top_k":-1)").value().requests[0].sampling.top_k, 0);
}

TEST(CompletionRequest, A_PA_8_TypesAreStrict) {
  expect_refused(completion(R"("stream":"true")"), "stream", "stream must be a boolean");
  expect_refused(completion(R"("stream":1)"), "stream");
  expect_refused(completion(R"("max_tokens":"256")"), "max_tokens", "must be an integer");
  expect_refused(completion(R"("n":9223372036854775807)"), "n", "between 1 and 128, got 9223372036854775807");
  expect_refused(completion(R"("n":2.0)"), "n", "must be an integer, got 2.0");
  expect_refused(completion(R"("n":0)"), "n");
  expect_refused(completion(R"("n":129)"), "n");
  expect_refused(completion(R"("echo":"yes")"), "echo");
  expect_refused(completion(R"("seed":"1")"), "seed");
  expect_refused(completion(R"("seed":18446744073709551615)"), "seed");
  expect_refused(completion(R"("model":5)"), "model");
  expect_refused(completion(R"("stop_token_ids":[1000])"), "stop_token_ids");
  expect_refused(completion(R"("min_tokens":20)"), "min_tokens",
                 "min_tokens 20 is greater than max_tokens 16");
}

TEST(CompletionRequest, A_PA_9_LogprobsAreCappedBeforeAnythingIsAllocated) {
  expect_refused(completion(R"("logprobs":100000)"), "logprobs", "between 0 and 5");
  expect_refused(completion(R"("logprobs":6)"), "logprobs");
  expect_refused(completion(R"("logprobs":-1)"), "logprobs");
  expect_refused(completion(R"("logprobs":true)"), "logprobs");
  EXPECT_TRUE(completion(R"("logprobs":20)", {.max_completion_logprobs = 20, .strict_model = false}).is_ok());
}

TEST(CompletionRequest, StopStrings) {
  EXPECT_EQ(completion(R"("stop":"x")").value().requests[0].stop, std::vector<std::string>{"x"});
  std::string many = "\"a\"";
  for (int i = 0; i < 15; i++) many += ",\"b\"";
  EXPECT_TRUE(completion("\"stop\":[" + many + "]").is_ok());
  expect_refused(completion("\"stop\":[" + many + ",\"c\"]"), "stop", "at most 16");
  expect_refused(completion(R"("stop":[1])"), "stop");
  expect_refused(completion(R"("stop":"")"), "stop");
  expect_refused(completion(R"("stop":{"a":1})"), "stop");
}

TEST(CompletionRequest, WhatWouldBeIgnoredIsRefused) {
  expect_refused(completion(R"("suffix":"x")"), "suffix", "", "unsupported");
  expect_refused(completion(R"("best_of":3)"), "best_of", "", "unsupported");
  expect_refused(completion(R"("response_format":{"schema":{}})"), "response_format");
  expect_refused(completion(R"("response_format":"json")"), "response_format");
  expect_refused(completion(R"("use_beam_search":true)"), "use_beam_search", "", "unsupported");
  expect_refused(completion(R"("stream_options":{"include_usage":true})"), "stream_options");
  expect_refused(completion(R"("stream":true,"stream_options":{"include_usage":"yes"})"), "stream_options");
  EXPECT_TRUE(completion(R"("response_format":{"type":"text"})").is_ok());
}

TEST(CompletionRequest, AGrammarIsOfEveryPrompt) {
  auto body = JsonBody::parse(R"({"prompt":["a","b"],"guided_regex":"x+"})");
  const auto plan = parse_completion_request(*body, facts(), {});
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  for (const GenerateRequest& request : plan.value().requests)
    EXPECT_EQ(request.grammar, (GrammarSpec{GrammarSpec::Kind::kRegex, "x+"}));
}

TEST(CompletionRequest, TheNumberOfAnswersIsLimited) {
  std::string prompts = "\"a\"";
  for (int i = 1; i < 9; i++) prompts += ",\"a\"";
  auto body = JsonBody::parse("{\"prompt\":[" + prompts + "],\"n\":128}");
  expect_refused(parse_completion_request(*body, facts(), {}), "n", "1024");
}

TEST(CompletionRequest, OtherModelNamesAreRefusedOnlyWhenStrict) {
  EXPECT_TRUE(completion(R"("model":"gpt-4")").is_ok());
  const auto strict = completion(R"("model":"gpt-4")", {.max_completion_logprobs = 5, .strict_model = true});
  ASSERT_FALSE(strict.is_ok());
  EXPECT_EQ(strict.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(strict.status().error_code(), "model_not_found");
  EXPECT_TRUE(completion(R"("model":"m")", {.max_completion_logprobs = 5, .strict_model = true}).is_ok());
}

TEST(ChatRequest, A_PA_4_NoHiddenMaxTokens) {
  const auto plan = chat("");
  ASSERT_TRUE(plan.is_ok());
  EXPECT_FALSE(plan.value().requests[0].max_tokens.has_value());
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":7)").value().requests[0].max_tokens, 7);
  expect_refused(chat(R"("max_completion_tokens":0)"), "max_completion_tokens");
}

TEST(ChatRequest, MessagesReachTheTemplateAsWritten) {
  const auto plan = chat(
      R"("tools":[{"type":"function","function":{"name":"f","a":1}}],"chat_template_kwargs":{"z":1,"b":2})");
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const auto& prompt = std::get<ChatPrompt>(plan.value().requests[0].prompt);
  EXPECT_EQ(prompt.messages, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(prompt.tools, R"([{"type":"function","function":{"name":"f","a":1}}])");
  EXPECT_EQ(prompt.template_kwargs, R"({"z":1,"b":2})");
  EXPECT_TRUE(prompt.add_generation_prompt);
}

TEST(ChatRequest, A_CH_1_EmptyAndShapelessMessages) {
  expect_refused(chat("", "[]"), "messages", "empty");
  expect_refused(chat("", "null"), "messages", "missing");
  expect_refused(chat("", "\"hi\""), "messages");
  expect_refused(chat("", "[1]"), "messages", "messages[0]");
  expect_refused(chat("", R"([{"content":"x"}])"), "messages", "role");
  expect_refused(chat("", R"([{"role":"user","content":5}])"), "messages", "messages[0].content");
}

TEST(ChatRequest, A_CH_2_ContentParts) {
  EXPECT_TRUE(
      chat("", R"([{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])")
          .is_ok());
  expect_refused(chat("", R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
                 "messages", "image_url", "unsupported");
  expect_refused(chat("", R"([{"role":"user","content":[{"type":"text"}]}])"), "messages");
  expect_refused(chat("", R"([{"role":"user","content":["a"]}])"), "messages");
  EXPECT_TRUE(chat("", R"([{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}])").is_ok());
  expect_refused(chat("", R"([{"role":"assistant","content":[{"type":"refusal","text":"no"}]}])"), "messages",
                 ".refusal must be a string");
}

TEST(ChatRequest, A_CH_3_ToolCallsWithoutContent) {
  EXPECT_TRUE(
      chat("",
           R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},
                           {"role":"tool","tool_call_id":"1","content":"4"}])")
          .is_ok());
  EXPECT_TRUE(chat("", R"([{"role":"user","content":"q"},{"role":"assistant","tool_calls":[]}])").is_ok());
}

TEST(ChatRequest, ToolsAreShownNeverForced) {
  const std::string tools = R"("tools":[{"type":"function"}])";
  EXPECT_EQ(std::get<ChatPrompt>(chat(tools + R"(,"tool_choice":"none")").value().requests[0].prompt).tools,
            "");
  EXPECT_NE(std::get<ChatPrompt>(chat(tools + R"(,"tool_choice":"auto")").value().requests[0].prompt).tools,
            "");
  expect_refused(chat(tools + R"(,"tool_choice":"required")"), "tool_choice", "", "unsupported");
  expect_refused(chat(tools + R"(,"tool_choice":{"type":"function"})"), "tool_choice", "", "unsupported");
  expect_refused(chat(tools + R"(,"tool_choice":"maybe")"), "tool_choice");
  expect_refused(chat(R"("tools":{})"), "tools");
  expect_refused(chat(R"("functions":[{}])"), "functions", "", "unsupported");
  expect_refused(chat(R"("functions":{})"), "functions", "", "unsupported");
  expect_refused(chat(R"("function_call":{"name":"f"})"), "function_call", "", "unsupported");
  for (const char* nothing : {R"("functions":[],"function_call":"none")", R"("function_call":"auto")",
                              R"("functions":null,"function_call":null)"})
    EXPECT_TRUE(chat(nothing).is_ok()) << nothing;
  expect_refused(chat(R"("modalities":["text","audio"])"), "modalities", "", "unsupported");
}

TEST(ChatRequest, Logprobs) {
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":20)").value().requests[0].sampling.top_logprobs, 20);
  EXPECT_EQ(chat(R"("logprobs":true)").value().requests[0].sampling.top_logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":false)").value().requests[0].sampling.top_logprobs, -1);
  expect_refused(chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "between 0 and 20");
  expect_refused(chat(R"("logprobs":true,"top_logprobs":-1)"), "top_logprobs");
  expect_refused(chat(R"("top_logprobs":2)"), "top_logprobs", "needs");
  expect_refused(chat(R"("logprobs":5)"), "logprobs", "boolean");
}

TEST(ChatRequest, ContinuingAMessage) {
  const auto plan = chat(R"("continue_final_message":true)");
  ASSERT_TRUE(plan.is_ok());
  EXPECT_FALSE(std::get<ChatPrompt>(plan.value().requests[0].prompt).add_generation_prompt);
  expect_refused(chat(R"("continue_final_message":true,"add_generation_prompt":true)"),
                 "continue_final_message");
}

}  // namespace
}  // namespace gapless
