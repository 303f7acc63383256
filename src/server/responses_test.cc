// OpenAI's responses endpoint: what becomes of its body, and its answers over the wire, streamed and not.
#include <gtest/gtest.h>

#include "server/responses_request.h"
#include "server/testing/plans.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kUrl = "/v1/responses";
const std::string kTools =
    R"("tools":[{"type":"function","name":"add","parameters":{"type":"object","properties":{"b":{},"a":{}}},"strict":true}])";
const std::string kCall =
    "I look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": \"\xC3\xA9\\n\", \"a\": "
    "1}}\n</tool_call>";

std::string body(const std::string& fields, const std::string& input = R"("hi")") {
  return "{\"input\":" + input + (fields.empty() ? "" : "," + fields) + "}";
}

Result<GenerationPlan> plan_of(const std::string& text) {
  return parse_plan(parse_responses_request, text);
}
ChatPrompt chat_of(const std::string& text) {
  return parse_chat(parse_responses_request, text);
}

std::vector<json> events_of(const ClientResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<json> events;
  for (const std::string& data : sse_data(response.body)) {
    events.push_back(json::parse(data));
    const std::string type = events.back()["type"];
    EXPECT_NE(response.body.find("event: " + type + "\ndata: " + data), std::string::npos);
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
  }
  return events;
}

// The output that clients put together from a stream; checked against what its last event says.
json joined(const std::vector<json>& events) {
  json output = json::array();
  for (const json& event : events) {
    const std::string type = event["type"];
    if (!event.contains("output_index")) continue;
    const size_t index = event["output_index"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(index, output.size());
      output.push_back(event["item"]);
      continue;
    }
    json& item = output.at(index);
    EXPECT_EQ(event.value("item_id", item["id"]), item["id"]);
    if (type == "response.content_part.added") item["content"].push_back(event["part"]);
    const char* text = item["type"] == "function_call" ? "arguments" : "text";
    json& place = item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"];
    if (event.contains("delta")) place = place.get<std::string>() + event["delta"].get<std::string>();
    if (type.ends_with("text.done") || type.ends_with("arguments.done")) {
      EXPECT_EQ(event[text], place);
    }
    if (type == "response.content_part.done") {
      EXPECT_EQ(event["part"], item["content"][0]);
    }
    if (type == "response.output_item.done") {
      item["status"] = event["item"]["status"];
      EXPECT_EQ(event["item"], item);
    }
  }
  EXPECT_EQ(events.back()["response"]["output"], output);
  return output;
}

// Without the ids, which differ from response to response.
json without_ids(json output) {
  for (json& item : output) {
    item.erase("id");
    item.erase("call_id");
  }
  return output;
}

TEST(ResponsesRequest, FieldsArrive) {
  const auto plan = plan_of(body(
      R"("temperature":0.5,"top_p":0.9,"max_output_tokens":40,"stream":true,"store":true,"user":"u","metadata":{},"seed":3,)"
      R"("text":{"format":{"type":"text"},"verbosity":"low"},"truncation":"auto","include":[],"reasoning":{"effort":"low"})"));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const GenerateRequest& r = plan->requests[0];
  EXPECT_EQ(r.max_tokens, 40);
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_EQ(r.seed, 3u);
  EXPECT_TRUE(plan->stream);
  EXPECT_FALSE(plan_of(body(""))->requests[0].max_tokens.has_value());
}

TEST(ResponsesRequest, ItemsBecomeTheChatsMessages) {
  EXPECT_EQ(chat_of(body("", R"("a\nb")")).messages, R"([{"role":"user","content":"a\nb"}])");
  const ChatPrompt chat = chat_of(body(
      R"("instructions":"Be brief.")",
      R"([{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"q"}]},
          {"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
          {"type":"message","id":"m","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},
          {"type":"function_call","call_id":"c1","name":"add","arguments":"{\"b\": 1}"},
          {"type":"function_call","call_id":"c2","name":"add","arguments":"{}"},
          {"type":"function_call_output","call_id":"c1","output":"3"},
          {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"4"}]}])"));
  EXPECT_EQ(
      chat.messages,
      R"([{"role":"system","content":"Be brief."},{"role":"developer","content":"d"},{"role":"user","content":"q"},)"
      R"({"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"add","arguments":"{\"b\": 1}"}},)"
      R"({"id":"c2","type":"function","function":{"name":"add","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"3"},{"role":"tool","tool_call_id":"c2","content":"4"}])");
}

TEST(ResponsesRequest, ToolsKeepTheOrderOfTheirSchemas) {
  EXPECT_EQ(
      chat_of(body(kTools)).tools,
      R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}])");
}

TEST(ResponsesRequest, ASchemaLimitsTheAnswer) {
  const auto plan = plan_of(body(
      R"("text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object","properties":{"b":{},"a":{}}}}})"));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const GenerateRequest& r = plan->requests[0];
  ASSERT_TRUE(r.grammar.has_value());
  EXPECT_EQ(r.grammar->kind, GrammarSpec::Kind::kJsonSchema);
  EXPECT_LT(r.grammar->text.find("\"b\""), r.grammar->text.find("\"a\"")) << "in the schema's own order";
  EXPECT_EQ(r.grammar_field, "text") << "what errors call it";
}

TEST(ResponsesRequest, WhatIsWrongIsNamed) {
  const struct {
    const char *fields, *param, *part;
  } kFields[] = {
      {R"("previous_response_id":"resp_1")", "previous_response_id", "stored"},
      {R"("response_format":{"type":"json_object"})", "response_format", "use text.format"},
      {R"("structural_tag":{})", "structural_tag", "use text.format"},
      {R"("conversation":"c")", "conversation", "stored"},
      {R"("prompt":{"id":"p"})", "prompt", "stored"},
      {R"("background":true)", "background", "stored"},
      {R"("store":1)", "store", "a boolean"},
      {R"("top_logprobs":3)", "top_logprobs", "not supported"},
      {R"("max_output_tokens":0)", "max_output_tokens", "between 1"},
      {R"("temperature":"hot")", "temperature", "a number"},
      {R"("instructions":3)", "instructions", "a string"},
      {R"("truncation":"middle")", "truncation", "one of auto, disabled"},
      {R"("truncation":1)", "truncation", "a string"},
      {R"("reasoning":"high")", "reasoning", "an object"},
      {R"("reasoning":{"effort":"huge"})", "reasoning.effort", "reasoning.effort must be one of"},
      {R"("include":"x")", "include", "a list of strings"},
      {R"("include":["message.output_text.logprobs"])", "include", "not supported"},
      {R"("tools":{})", "tools", "an array"},
      {R"("tools":[{"type":"web_search"}])", "tools", "not supported"},
      {R"("tools":[{"type":"function"}])", "tools", "name"},
      {R"("tool_choice":{"type":"file_search"})", "tool_choice", "tool_choice must"},
      {R"("text":"x")", "text", "an object"},
      {R"("text":{"format":{"type":"xml"}})", "text", "text.format"},
      {R"("text":{"format":{"type":"json_schema"}})", "text", "text.format"},
  };
  for (const auto& wrong : kFields) expect_refused(plan_of(body(wrong.fields)), wrong.param, wrong.part);
  const char* right = R"("truncation":"auto","reasoning":{"effort":"low","summary":null},
                         "include":["reasoning.encrypted_content"])";
  EXPECT_TRUE(plan_of(body(right)).is_ok());
  for (const char* input : {"3", "[]", "{}", "null"})
    expect_refused(plan_of(body("", input)), "input", "input must be");
  for (const char* item :
       {"3", R"({"role":"user"})", R"({"content":"x"})", R"({"type":"item_reference","id":"x"})",
        R"({"role":"user","content":[{"type":"input_image","image_url":"u"}]})",
        R"({"type":"function_call","call_id":"c","name":"n"})",
        R"({"type":"function_call_output","call_id":"c"})",
        R"({"type":"function_call_output","output":"x"})"}) {
    expect_refused(plan_of(body("", std::string("[") + item + "]")), "input", "input[0]");
  }
}

TEST(Responses, WholeAndStreamedAreTheSame) {
  TestServer t;
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body(R"("instructions":"i","temperature":0.25)")).json();
  EXPECT_EQ(whole["object"], "response");
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["model"], "fake-model");
  EXPECT_EQ(whole["id"].get<std::string>().rfind("resp_", 0), 0u);
  EXPECT_EQ(whole["instructions"], "i");
  EXPECT_EQ(whole["temperature"], 0.25);
  EXPECT_EQ(whole["store"], false);
  EXPECT_TRUE(whole["error"].is_null());
  EXPECT_TRUE(whole["incomplete_details"].is_null());
  const std::string messages = std::get<ChatPrompt>(t.engine.submitted().at(0).prompt).messages;
  EXPECT_EQ(whole["usage"]["input_tokens"], messages.size());
  EXPECT_EQ(whole["usage"]["output_tokens"], 8);
  EXPECT_EQ(whole["usage"]["total_tokens"], messages.size() + 8);
  ASSERT_EQ(whole["output"].size(), 1u);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], t.engine.answer(messages, 0, 8));
  const auto events =
      events_of(client.post(kUrl, body(R"("instructions":"i","temperature":0.25,"stream":true)")));
  EXPECT_EQ(without_ids(joined(events)), without_ids(whole["output"]));
  json last = events.back()["response"];
  for (const char* member : {"id", "output", "created_at"}) last[member] = whole[member];
  EXPECT_EQ(last, whole);
}

TEST(Responses, TheEventsOfAStream) {
  TestServer t({.answer_tokens = 2});
  std::string types;
  const auto events = events_of(t.client().post(kUrl, body(R"("stream":true)")));
  for (const json& event : events)
    if (!event.contains("delta")) types += event["type"].get<std::string>().substr(9) + " ";
  EXPECT_EQ(types,
            "created in_progress output_item.added content_part.added output_text.done content_part.done "
            "output_item.done completed ");
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_TRUE(events[0]["response"]["usage"].is_null());
}

TEST(Responses, CallsOfTools) {
  TestServer t({.script = kCall});
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body(kTools)).json();
  ASSERT_EQ(whole["output"].size(), 2u) << whole;
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "I look.");
  const json& call = whole["output"][1];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "add");
  EXPECT_EQ(call["arguments"], "{\"b\": \"\xC3\xA9\\n\", \"a\": 1}");
  EXPECT_FALSE(call["call_id"].get<std::string>().empty());
  const auto events = events_of(client.post(kUrl, body(kTools + R"(,"stream":true)")));
  EXPECT_EQ(without_ids(joined(events)), without_ids(whole["output"]));
}

TEST(Responses, ThoughtsAreAnItem) {
  TestServer t({.script = "<think>\nhm\n</think>\nYes", .marks_reasoning = true});
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body("")).json();
  ASSERT_EQ(whole["output"].size(), 2u) << whole;
  EXPECT_EQ(whole["output"][0]["type"], "reasoning");
  EXPECT_EQ(whole["output"][0]["content"], json::parse(R"([{"type":"reasoning_text","text":"hm"}])"));
  const auto events = events_of(client.post(kUrl, body(R"("stream":true)")));
  EXPECT_EQ(without_ids(joined(events)), without_ids(whole["output"]));
}

TEST(Responses, AnAnswerThatWasCutIsIncomplete) {
  TestServer t;
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body(R"("max_output_tokens":3)")).json();
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "incomplete");
  const auto events = events_of(client.post(kUrl, body(R"("max_output_tokens":3,"stream":true)")));
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  EXPECT_EQ(without_ids(joined(events)), without_ids(whole["output"]));
}

TEST(Responses, AnErrorEndsTheStream) {
  TestServer t({.step = 20ms, .fault = [](const GenerateRequest&, int32_t, int32_t token) {
                  return token < 2 ? Status() : Status::internal("secret details");
                }});
  HttpClient client = t.client();
  const ClientResponse r = client.post(kUrl, body(R"("stream":true)"));
  const auto events = events_of(r);
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "server_error");
  EXPECT_EQ(r.body.find("secret details"), std::string::npos);
  EXPECT_EQ(client.post(kUrl, body("")).status, 500);
}

TEST(ApplyTemplate, GivesThePrompt) {
  TestServer t;
  HttpClient client = t.client();
  const ClientResponse r = client.post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.json()["prompt"], R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(client.post("/apply-template", "{}").error("param"), "messages");
  EXPECT_TRUE(t.engine.submitted().empty());
}

}  // namespace
}  // namespace gapless::testing
