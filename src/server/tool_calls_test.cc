// Calls of functions and reasoning in chat answers, over the wire, streamed and not.
#include <gtest/gtest.h>

#include <set>

#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using nlohmann::json;

const std::string kUrl = "/v1/chat/completions";
const std::string kCalls =
    "I look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"\xC3\xA9\\n\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

std::string body(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"add"}},)"
         R"({"type":"function","function":{"name":"now"}}])" +
         fields + "}";
}

// A stream's message of each choice, as clients put it together, with its finish_reason.
std::map<int, json> joined(const ClientResponse& response) {
  std::map<int, json> choices;
  for (const std::string& data : sse_data(response.body)) {
    if (data == "[DONE]") continue;
    const json chunk = json::parse(data);
    for (const json& choice : chunk["choices"]) {
      json& all =
          choices.try_emplace(choice["index"].get<int>(), json{{"tool_calls", json::array()}}).first->second;
      const json& delta = choice["delta"];
      for (const char* text : {"content", "reasoning_content"}) {
        if (delta.contains(text)) all[text] = all.value(text, "") + delta[text].get<std::string>();
      }
      const json pieces = delta.value("tool_calls", json::array());
      for (const json& piece : pieces) {
        json& calls = all["tool_calls"];
        const size_t index = piece["index"];
        if (index == calls.size()) {
          EXPECT_EQ(piece["type"], "function");
          calls.push_back({{"id", piece["id"]}, {"type", "function"}, {"function", piece["function"]}});
          continue;
        }
        EXPECT_EQ(index + 1, calls.size());
        EXPECT_FALSE(piece.contains("id")) << "A-TL-1: id and name come once";
        EXPECT_FALSE(piece["function"].contains("name"));
        json& arguments = calls.back()["function"]["arguments"];
        arguments = arguments.get<std::string>() + piece["function"]["arguments"].get<std::string>();
      }
      if (!choice["finish_reason"].is_null()) all["finish_reason"] = choice["finish_reason"];
    }
  }
  return choices;
}

// The calls without their ids.
json calls_of(const json& message) {
  json calls = message.value("tool_calls", json::array());
  for (json& call : calls) call.erase("id");
  return calls;
}

TEST(ToolCalls, A_TL_1_WholeAndStreamedAreTheSame) {
  TestServer t({.script = kCalls});
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body(R"(,"n":2)")).json();
  std::set<std::string> ids;
  std::map<int, json> stream = joined(client.post(kUrl, body(R"(,"n":2,"stream":true)")));
  for (int i = 0; i < 2; i++) {
    const json& choice = whole["choices"][i];
    const json& message = choice["message"];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_EQ(message["content"], "I look.");
    ASSERT_EQ(message["tool_calls"].size(), 2u) << message;
    EXPECT_EQ(message["tool_calls"][0]["type"], "function");
    EXPECT_EQ(message["tool_calls"][0]["function"],
              json({{"name", "add"}, {"arguments", "{\"a\": \"\xC3\xA9\\n\"}"}}));
    EXPECT_EQ(message["tool_calls"][1]["function"], json({{"name", "now"}, {"arguments", "{}"}}));
    EXPECT_EQ(stream[i]["content"], message["content"]);
    EXPECT_EQ(calls_of(stream[i]), calls_of(message));
    EXPECT_EQ(stream[i]["finish_reason"], "tool_calls");
    for (const json& calls : {message["tool_calls"], stream[i]["tool_calls"]}) {
      for (const json& call : calls) {
        EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
        EXPECT_TRUE(ids.insert(call["id"]).second) << "ids are unique";
      }
    }
  }
}

TEST(ToolCalls, WithoutContentItIsNull) {
  TestServer t({.script = kCalls.substr(kCalls.find('<'))});
  HttpClient client = t.client();
  const json message = client.post(kUrl, body("")).json()["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null()) << message;
  EXPECT_TRUE(message["refusal"].is_null());
  EXPECT_EQ(message["tool_calls"].size(), 2u);
}

TEST(ToolCalls, WhereNoneAreAskedForTheTextIsContent) {
  TestServer t({.script = kCalls});
  HttpClient client = t.client();
  for (const char* fields : {R"(,"tool_choice":"none")", R"(,"tools":null)", R"(,"tools":[])"}) {
    const json choice = client.post(kUrl, body(fields)).json()["choices"][0];
    EXPECT_EQ(choice["message"]["content"], kCalls) << fields;
    EXPECT_FALSE(choice["message"].contains("tool_calls"));
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST(ToolCalls, AnAnswerCutByItsLengthSaysSo) {
  TestServer t({.script = kCalls});
  HttpClient client = t.client();
  for (const bool forced : {false, true}) {
    const std::string fields =
        std::string(R"(,"max_tokens":60)") + (forced ? R"(,"tool_choice":"required")" : "");
    const json choice = client.post(kUrl, body(fields)).json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "length");
    std::map<int, json> stream = joined(client.post(kUrl, body(fields + R"(,"stream":true)")));
    EXPECT_EQ(stream[0]["finish_reason"], "length");
    EXPECT_EQ(calls_of(stream[0]), calls_of(choice["message"]));
    EXPECT_EQ(stream[0]["content"], choice["message"]["content"]);
    if (!forced) {
      EXPECT_EQ(choice["message"]["content"], kCalls.substr(0, 60)) << "half a call is no call";
    } else {
      EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u)
          << "one that was forced is told as far as it came";
    }
  }
}

TEST(ToolCalls, LogprobsAreOfAllTokens) {
  TestServer t({.script = kCalls});
  HttpClient client = t.client();
  const json whole = client.post(kUrl, body(R"(,"logprobs":true)")).json()["choices"][0];
  EXPECT_EQ(whole["logprobs"]["content"].size(), kCalls.size());
  size_t streamed = 0;
  for (const std::string& data :
       sse_data(client.post(kUrl, body(R"(,"logprobs":true,"stream":true)")).body)) {
    if (data == "[DONE]") continue;
    const json choice = json::parse(data)["choices"][0];
    if (!choice["logprobs"].is_null()) streamed += choice["logprobs"]["content"].size();
  }
  EXPECT_EQ(streamed, kCalls.size());
}

TEST(Reasoning, IsAFieldOfItsOwn) {
  for (const bool opened : {false, true}) {
    const std::string script = std::string(opened ? "" : "<think>\n") + "hm\n</think>\n\n" + kCalls;
    TestServer t({.script = script, .marks_reasoning = true, .opens_reasoning = opened});
    HttpClient client = t.client();
    const json choice = client.post(kUrl, body("")).json()["choices"][0];
    EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
    EXPECT_EQ(choice["message"]["content"], "I look.");
    EXPECT_EQ(choice["message"]["tool_calls"].size(), 2u);
    std::map<int, json> stream = joined(client.post(kUrl, body(R"(,"stream":true)")));
    EXPECT_EQ(stream[0]["reasoning_content"], "hm");
    EXPECT_EQ(stream[0]["content"], "I look.");
    EXPECT_EQ(calls_of(stream[0]), calls_of(choice["message"]));
    const json plain = client.post(kUrl, body(R"(,"separate_reasoning":false,"tool_choice":"none")")).json();
    EXPECT_EQ(plain["choices"][0]["message"]["content"], script) << "as the model wrote it";
    EXPECT_FALSE(plain["choices"][0]["message"].contains("reasoning_content"));
  }
}

TEST(Reasoning, AnAnswerThatIsCutWhileItThinksHasNoContent) {
  TestServer t({.script = "<think>so long", .marks_reasoning = true});
  HttpClient client = t.client();
  const json message = client.post(kUrl, body(R"(,"max_tokens":12)")).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "so lo");
  EXPECT_TRUE(message["content"].is_null());
}

}  // namespace
}  // namespace gapless::testing
