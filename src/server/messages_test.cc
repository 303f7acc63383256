// Anthropic's endpoint: what becomes of its body, and its answers over the wire, streamed and not.
#include <gtest/gtest.h>

#include "server/messages_request.h"
#include "server/testing/plans.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kUrl = "/v1/messages";
const std::string kTools =
    R"("tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object","properties":{"b":{},"a":{}}}}])";
const std::string kCall =
    "I look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": \"\xC3\xA9\\n\", \"a\": "
    "1}}\n</tool_call>";

std::string body(const std::string& fields,
                 const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  return "{\"messages\":" + messages + ",\"max_tokens\":100" + (fields.empty() ? "" : "," + fields) + "}";
}

Result<GenerationPlan> plan_of(const std::string& text) {
  return parse_plan(parse_messages_request, text);
}
ChatPrompt chat_of(const std::string& text) {
  return parse_chat(parse_messages_request, text);
}

struct Event {
  std::string type;
  json data;
};

std::vector<Event> events_of(const ClientResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<Event> events;
  for (const std::string& data : sse_data(response.body)) {
    json parsed = json::parse(data);
    events.push_back({parsed["type"], parsed});
    EXPECT_NE(response.body.find("event: " + events.back().type + "\ndata: " + data), std::string::npos);
  }
  return events;
}

// The message that clients put together from a stream.
json joined(const std::vector<Event>& events) {
  json message;
  std::map<size_t, std::string> inputs;
  for (const auto& [type, data] : events) {
    if (type == "message_start") message = data["message"];
    if (type == "content_block_start") {
      EXPECT_EQ(data["index"], message["content"].size()) << "blocks come one after another";
      message["content"].push_back(data["content_block"]);
    }
    if (type == "content_block_delta") {
      const size_t index = data["index"];
      EXPECT_EQ(index + 1, message["content"].size());
      json& block = message["content"][index];
      const json& delta = data["delta"];
      if (delta["type"] == "text_delta")
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      if (delta["type"] == "thinking_delta")
        block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      if (delta["type"] == "input_json_delta") inputs[index] += delta["partial_json"].get<std::string>();
    }
    if (type == "content_block_stop" && inputs.count(data["index"])) {
      message["content"][data["index"].get<size_t>()]["input"] = json::parse(inputs[data["index"]]);
    }
    if (type == "message_delta") {
      message.update(data["delta"]);
      message["usage"] = data["usage"];
    }
  }
  return message;
}

TEST(MessagesRequest, FieldsArrive) {
  const auto plan = plan_of(body(
      R"("temperature":0.5,"top_p":0.9,"top_k":40,"stop_sequences":["a","b"],"stream":true,"metadata":{"user_id":"x"},"seed":3)"));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const GenerateRequest& r = plan->requests[0];
  EXPECT_EQ(r.max_tokens, 100);
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_EQ(r.sampling.top_k, 40);
  EXPECT_EQ(r.seed, 3u);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(plan->stream);
}

TEST(MessagesRequest, BlocksBecomeTheChatsMessages) {
  const ChatPrompt chat = chat_of(
      body(R"("system":[{"type":"text","text":"Be "},{"type":"text","text":"brief.","cache_control":{}}])",
           R"([{"role":"user","content":[{"type":"text","text":"a\"b"},{"type":"text","text":"c"}]},
          {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I look."},
            {"type":"tool_use","id":"t1","name":"add","input":{"b": 1 ,"a":[{"}":"]"}]}}]},
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"3"}]},
            {"type":"tool_result","tool_use_id":"t2"},{"type":"text","text":"and now?"}]}])"));
  EXPECT_EQ(
      chat.messages,
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a\"bc"},)"
      R"({"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function",)"
      R"("function":{"name":"add","arguments":{"b": 1 ,"a":[{"}":"]"}]}}}]},)"
      R"({"role":"tool","tool_call_id":"t1","content":"3"},{"role":"tool","tool_call_id":"t2","content":""},)"
      R"({"role":"user","content":"and now?"}])")
      << "inputs keep the client's own order and spelling";
  EXPECT_TRUE(chat.add_generation_prompt);
}

TEST(MessagesRequest, ToolsKeepTheOrderOfTheirSchemas) {
  const ChatPrompt chat = chat_of(body(kTools));
  EXPECT_EQ(chat.tools, R"([{"type":"function","function":{"name":"add","description":"Adds.",)"
                        R"("parameters":{"type":"object","properties":{"b":{},"a":{}}}}}])");
  EXPECT_EQ(chat_of(body(kTools + R"(,"tool_choice":{"type":"none"})")).tools, "");
}

TEST(MessagesRequest, TheAnswerGoesOnWithTheAssistantsWords) {
  const ChatPrompt chat =
      chat_of(body("", R"([{"role":"user","content":"hi"},{"role":"assistant","content":"Well,"}])"));
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_FALSE(chat.add_generation_prompt);
}

TEST(MessagesRequest, ThinkingIsTheTemplatesSwitch) {
  EXPECT_EQ(chat_of(body(R"("thinking":{"type":"disabled"})")).template_kwargs,
            R"({"enable_thinking":false})");
  EXPECT_EQ(chat_of(body(R"("thinking":{"type":"enabled","budget_tokens":1024})")).template_kwargs,
            R"({"enable_thinking":true})");
  EXPECT_EQ(chat_of(body("")).template_kwargs, "");
}

TEST(MessagesRequest, ASchemaLimitsTheAnswer) {
  const auto plan = plan_of(body(
      R"("output_config":{"format":{"type":"json_schema","schema":{"type":"object","properties":{"b":{},"a":{}}}}})"));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const GenerateRequest& r = plan->requests[0];
  ASSERT_TRUE(r.grammar.has_value());
  EXPECT_EQ(r.grammar->kind, GrammarSpec::Kind::kJsonSchema);
  EXPECT_LT(r.grammar->text.find("\"b\""), r.grammar->text.find("\"a\"")) << "in the schema's own order";
  EXPECT_EQ(r.grammar_field, "output_config") << "what errors call it";
}

TEST(MessagesRequest, WhatIsWrongIsNamed) {
  expect_refused(plan_of(R"({"messages":[{"role":"user","content":"hi"}]})"), "max_tokens", "missing");
  expect_refused(plan_of(R"({"max_tokens":3})"), "messages", "messages must be an array");
  const struct {
    const char *fields, *param, *part;
  } kFields[] = {
      {R"("max_tokens":0)", "max_tokens", "between 1"},
      {R"("regex":"a")", "regex", "use output_config.format"},
      {R"("output_format":{"type":"json_schema"})", "output_format", "use output_config.format"},
      {R"("temperature":"hot")", "temperature", "a number"},
      {R"("top_p":2)", "top_p", "at most 1"},
      {R"("stop_sequences":"a")", "stop_sequences", "an array"},
      {R"("stop_sequences":[1])", "stop_sequences", "strings"},
      {R"("stop_sequences":[""])", "stop_sequences", "between 1"},
      {R"("system":3)", "system", "a string"},
      {R"("system":[{"type":"image"}])", "system", "text only"},
      {R"("tools":{})", "tools", "an array"},
      {R"("tools":[{"name":"x"}])", "tools", "input_schema"},
      {R"("tools":[{"input_schema":{}}])", "tools", "name"},
      {R"("tools":[{"type":"web_search_20250305","name":"web_search"}])", "tools", "not supported"},
      {R"("tool_choice":"any")", "tool_choice", "an object"},
      {R"("tool_choice":{"type":"tool"})", "tool_choice", "name"},
      {R"("thinking":true)", "thinking", "an object"},
      {R"("output_config":{"format":{"type":"xml"}})", "output_config", "json_schema"},
      {R"("mcp_servers":[])", "mcp_servers", "not supported"},
  };
  for (const auto& wrong : kFields) expect_refused(plan_of(body(wrong.fields)), wrong.param, wrong.part);
  for (const char* message :
       {R"({"role":"system","content":"x"})", R"({"role":"user"})", R"({"role":"user","content":3})", "3",
        R"({"role":"user","content":[{"type":"image","source":{}}]})",
        R"({"role":"user","content":[{"text":"x"}]})", R"({"role":"user","content":[{"type":"text"}]})",
        R"({"role":"user","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]})",
        R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":3}]})",
        R"({"role":"assistant","content":[{"type":"tool_use","name":"b","input":{}}]})",
        R"({"role":"user","content":[{"type":"tool_result","content":"x"}]})"}) {
    expect_refused(plan_of(body("", std::string("[") + message + "]")), "messages", "messages[0]");
  }
}

TEST(Messages, WholeAndStreamedAreTheSame) {
  TestServer t;
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body("")).json();
  EXPECT_EQ(whole["type"], "message");
  EXPECT_EQ(whole["role"], "assistant");
  EXPECT_EQ(whole["model"], "fake-model");
  EXPECT_EQ(whole["id"].get<std::string>().rfind("msg_", 0), 0u);
  EXPECT_EQ(whole["stop_reason"], "end_turn");
  EXPECT_TRUE(whole["stop_sequence"].is_null());
  EXPECT_EQ(whole["usage"]["output_tokens"], 8);
  const std::string messages = std::get<ChatPrompt>(t.engine.submitted().at(0).prompt).messages;
  EXPECT_EQ(whole["usage"]["input_tokens"], messages.size());
  EXPECT_EQ(whole["content"], json::array({{{"type", "text"}, {"text", t.engine.answer(messages, 0, 8)}}}));
  json stream = joined(events_of(client.post(kUrl, body(R"("stream":true)"))));
  stream["id"] = whole["id"];
  EXPECT_EQ(stream, whole);
}

TEST(Messages, TheEventsOfAStream) {
  TestServer t({.answer_tokens = 2});
  const std::vector<Event> events = events_of(t.client().post(kUrl, body(R"("stream":true)")));
  std::string types;
  for (const Event& event : events)
    if (event.type != "content_block_delta") types += event.type + " ";
  EXPECT_EQ(types, "message_start content_block_start content_block_stop message_delta message_stop ");
  EXPECT_TRUE(events[0].data["message"]["stop_reason"].is_null());
  EXPECT_EQ(events[0].data["message"]["content"], json::array());
  EXPECT_GT(events[0].data["message"]["usage"]["input_tokens"].get<int>(), 0);
}

TEST(Messages, CallsOfTools) {
  TestServer t({.script = kCall});
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body(kTools)).json();
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  ASSERT_EQ(whole["content"].size(), 2u) << whole;
  EXPECT_EQ(whole["content"][0]["text"], "I look.");
  EXPECT_EQ(whole["content"][1]["type"], "tool_use");
  EXPECT_EQ(whole["content"][1]["name"], "add");
  EXPECT_EQ(whole["content"][1]["input"], json({{"b", "\xC3\xA9\n"}, {"a", 1}}));
  EXPECT_FALSE(whole["content"][1]["id"].get<std::string>().empty());
  json stream = joined(events_of(client.post(kUrl, body(kTools + R"(,"stream":true)"))));
  EXPECT_NE(stream["content"][1]["id"], whole["content"][1]["id"]) << "ids are unique";
  stream["content"][1]["id"] = whole["content"][1]["id"];
  EXPECT_EQ(stream["content"], whole["content"]);
  EXPECT_EQ(stream["stop_reason"], "tool_use");
}

TEST(Messages, ThoughtsAreABlock) {
  TestServer t({.script = "<think>\nhm\n</think>\nYes", .marks_reasoning = true});
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body("")).json();
  EXPECT_EQ(
      whole["content"],
      json::parse(R"([{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Yes"}])"));
  EXPECT_EQ(joined(events_of(client.post(kUrl, body(R"("stream":true)"))))["content"], whole["content"]);
}

TEST(Messages, StopReasons) {
  TestServer t;
  HttpClient client = t.client();
  EXPECT_EQ(client.post(kUrl, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3})")
                .json()["stop_reason"],
            "max_tokens");
}

TEST(Messages, ErrorsHaveAnthropicsShape) {
  TestServer t;
  HttpClient client = t.client();
  const auto expect_error = [](const ClientResponse& r, int status, const std::string& type) {
    EXPECT_EQ(r.status, status) << r.body;
    EXPECT_EQ(r.json()["type"], "error");
    EXPECT_EQ(r.json()["error"]["type"], type) << r.body;
    EXPECT_FALSE(r.json()["error"]["message"].get<std::string>().empty());
    EXPECT_EQ(r.json()["request_id"], r.headers.at("x-request-id"));
  };
  expect_error(client.post(kUrl, "{"), 400, "invalid_request_error");
  expect_error(client.post(kUrl, body(R"("temperature":9)")), 400, "invalid_request_error");
  expect_error(client.get(kUrl), 405, "invalid_request_error");
  expect_error(client.post(kUrl + "/count_tokens", "[]"), 400, "invalid_request_error");
  expect_error(client.post(kUrl + "/batches", "{}"), 404, "not_found_error");
  ServerConfig config;
  config.api_keys = {"secret"};
  TestServer locked({}, config);
  HttpClient stranger = locked.client();
  expect_error(stranger.post(kUrl, body("")), 401, "authentication_error");
  expect_error(stranger.post(kUrl, body(""), "X-Api-Key: wrong\r\n"), 401, "authentication_error");
  EXPECT_EQ(stranger.post(kUrl, body(""), "X-Api-Key: secret\r\nanthropic-version: 2023-06-01\r\n").status,
            200);
  EXPECT_EQ(stranger.post(kUrl, body(""), "Authorization: Bearer secret\r\n").status, 200);
}

TEST(Messages, AnErrorEndsTheStream) {
  TestServer t({.step = 20ms, .fault = [](const GenerateRequest&, int32_t, int32_t token) {
                  return token < 2 ? Status() : Status::internal("secret details");
                }});
  const ClientResponse r = t.client().post(kUrl, body(R"("stream":true)"));
  const std::vector<Event> events = events_of(r);
  EXPECT_EQ(events.back().type, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "api_error");
  EXPECT_EQ(r.body.find("secret details"), std::string::npos);
  EXPECT_EQ(r.body.find("message_stop"), std::string::npos);
}

TEST(Messages, CountTokens) {
  TestServer t;
  HttpClient client = t.client();
  const std::string asked = R"({"messages":[{"role":"user","content":"hi"}],"system":"s"})";
  const ClientResponse r = client.post(kUrl + "/count_tokens", asked);
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.json()["input_tokens"],
            std::string(R"([{"role":"system","content":"s"},{"role":"user","content":"hi"}])").size());
  EXPECT_TRUE(t.engine.submitted().empty());
}

}  // namespace
}  // namespace gapless::testing
