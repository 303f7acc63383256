// The OpenAI endpoints over the wire: shapes, streams, errors inside them, usage, metrics.
#include <gtest/gtest.h>

#include <set>

#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kMessages = R"([{"role":"user","content":"hi"}])";

std::string chat_body(const std::string& fields) {
  return "{\"messages\":" + kMessages + "," + fields + "}";
}

// What a stream adds up to, per choice.
struct Joined {
  std::map<int, std::string> text;
  std::map<int, int> finishes;
  std::map<int, std::string> reason;
  std::map<int, json> logprobs;
  std::vector<json> chunks;
  json usage;
  bool done = false;
};

Joined join(const ClientResponse& response) {
  Joined out;
  for (const std::string& data : sse_data(response.body)) {
    EXPECT_FALSE(out.done) << "nothing follows [DONE]";
    if (data == "[DONE]") {
      out.done = true;
      continue;
    }
    const json chunk = json::parse(data);
    out.chunks.push_back(chunk);
    if (!chunk.contains("choices")) continue;
    if (chunk["choices"].empty()) out.usage = chunk["usage"];
    for (const json& choice : chunk["choices"]) {
      const int index = choice["index"];
      EXPECT_TRUE(choice.contains("finish_reason"));
      if (choice.contains("delta")) out.text[index] += choice["delta"].value("content", "");
      if (choice.contains("text")) out.text[index] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) {
        out.finishes[index]++;
        out.reason[index] = choice["finish_reason"];
      }
      if (choice["logprobs"].is_null()) continue;
      for (const auto& [key, list] : choice["logprobs"].items()) {
        for (const json& item : list) out.logprobs[index][key].push_back(item);
      }
    }
  }
  return out;
}

TEST(Chat, WholeResponse) {
  TestServer t;
  HttpClient client = t.client();
  const ClientResponse r = client.post("/v1/chat/completions", chat_body(R"("max_completion_tokens":5)"));
  ASSERT_EQ(r.status, 200) << r.body;
  const json j = r.json();
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_EQ(j["model"], "fake-model");
  EXPECT_EQ(j["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  EXPECT_GT(j["created"].get<int64_t>(), 1'600'000'000);
  const json& choice = j["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], t.engine.answer(kMessages, 0, 5));
  EXPECT_TRUE(choice["message"]["refusal"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(j["usage"]["prompt_tokens"], kMessages.size());
  EXPECT_EQ(j["usage"]["completion_tokens"], 5);
  EXPECT_EQ(j["usage"]["total_tokens"], kMessages.size() + 5);
  EXPECT_EQ(j["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(Chat, StreamJoinsToTheWholeText) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  const ClientResponse r = client.post("/v1/chat/completions", chat_body(R"("stream":true,"n":3)"));
  ASSERT_EQ(r.status, 200);
  EXPECT_EQ(r.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(r.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(r.headers.at("x-accel-buffering"), "no");
  const Joined joined = join(r);
  EXPECT_TRUE(joined.done);
  std::set<int> opened;
  std::set<std::string> ids;
  for (const json& chunk : joined.chunks) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_FALSE(chunk.contains("usage")) << "nobody asked for it";
    ids.insert(chunk["id"].get<std::string>());
    const json& choice = chunk["choices"][0];
    const bool first = opened.insert(choice["index"].get<int>()).second;
    EXPECT_EQ(choice["delta"].contains("role"), first);
  }
  EXPECT_EQ(ids.size(), 1u);
  const json whole = client.post("/v1/chat/completions", chat_body(R"("n":3)")).json();
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(joined.text.at(i), whole["choices"][i]["message"]["content"]);
    EXPECT_EQ(joined.text.at(i), t.engine.answer(kMessages, i, 8));
    EXPECT_EQ(joined.finishes.at(i), 1);
    EXPECT_EQ(joined.reason.at(i), "stop");
  }
  EXPECT_NE(joined.text.at(0), joined.text.at(1));
}

TEST(Chat, LogprobsShape) {
  TestServer t;
  HttpClient client = t.client();
  const std::string fields = R"("logprobs":true,"top_logprobs":3,"max_tokens":7)";
  const json whole = client.post("/v1/chat/completions", chat_body(fields)).json()["choices"][0]["logprobs"];
  ASSERT_EQ(whole["content"].size(), 7u);
  std::string bytes;
  for (const json& token : whole["content"]) {
    EXPECT_TRUE(token["token"].is_string());
    EXPECT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_EQ(token["top_logprobs"][0]["logprob"], token["logprob"]) << "the same float";
    EXPECT_EQ(token["top_logprobs"][2]["logprob"], -9999.0) << "A-LP-2: minus infinity";
    for (const json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, t.engine.answer(kMessages, 0, 7)) << "the bytes are exact where tokens cut characters";
  const Joined stream = join(client.post("/v1/chat/completions", chat_body(fields + R"(,"stream":true)")));
  EXPECT_EQ(stream.logprobs.at(0)["content"], whole["content"]);
}

TEST(Chat, ALargeAnswerIsWrittenOffTheLoopAndIsTheSame) {
  TestServer t({.answer_tokens = 2000});
  HttpClient client = t.client();
  const std::string fields = R"("logprobs":true,"top_logprobs":20)";
  const json whole = client.post("/v1/chat/completions", chat_body(fields)).json()["choices"][0];
  EXPECT_EQ(whole["message"]["content"], t.engine.answer(kMessages, 0, 2000));
  ASSERT_EQ(whole["logprobs"]["content"].size(), 2000u);
  const Joined stream = join(client.post("/v1/chat/completions", chat_body(fields + R"(,"stream":true)")));
  EXPECT_EQ(stream.logprobs.at(0)["content"], whole["logprobs"]["content"]);
}

TEST(Completions, A_LP_1_EchoWithLogprobs) {
  TestServer t;
  HttpClient client = t.client();
  const json j = client
                     .post("/v1/completions",
                           R"({"prompt":"hé\"x","echo":true,"logprobs":1,"max_tokens":1,"temperature":0})")
                     .json();
  const json& choice = j["choices"][0];
  const json& lp = choice["logprobs"];
  const std::string text = "hé\"x" + t.engine.answer("hé\"x", 0, 1);
  EXPECT_EQ(choice["text"], text);
  ASSERT_EQ(lp["tokens"].size(), 6u) << "five bytes and one generated token";
  ASSERT_EQ(lp["token_logprobs"].size(), 6u);
  ASSERT_EQ(lp["top_logprobs"].size(), 6u);
  EXPECT_TRUE(lp["token_logprobs"][0].is_null());
  EXPECT_TRUE(lp["top_logprobs"][0].is_null());
  EXPECT_EQ(lp["text_offset"], json::parse("[0,1,2,2,3,4]")) << "characters; é belongs to its first byte";
  EXPECT_EQ(lp["tokens"][1], "bytes:\\xc3");
  for (int i = 1; i < 6; i++) {
    EXPECT_LE(lp["token_logprobs"][i].get<double>(), 0);
    double best = -1e30;
    for (const auto& [token, value] : lp["top_logprobs"][i].items())
      best = std::max(best, value.get<double>());
    EXPECT_EQ(best, lp["token_logprobs"][i].get<double>()) << "is_greedy compares for exact equality";
  }
}

TEST(Completions, LogprobsStreamedEqualWhole) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  const std::string fields = R"("prompt":["ab","c"],"echo":true,"logprobs":2,"max_tokens":7)";
  const json whole = client.post("/v1/completions", "{" + fields + "}").json();
  const Joined stream = join(client.post("/v1/completions", "{" + fields + R"(,"stream":true})"));
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(stream.text.at(i), whole["choices"][i]["text"]);
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      EXPECT_EQ(stream.logprobs.at(i)[key], whole["choices"][i]["logprobs"][key]) << key;
    }
  }
  EXPECT_TRUE(stream.done);
}

TEST(Completions, ListsAndNMultiplexByIndex) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  const std::string fields = R"("prompt":[[97],[98,99]],"n":2,"max_tokens":4)";
  const json whole = client.post("/v1/completions", "{" + fields + "}").json();
  ASSERT_EQ(whole["choices"].size(), 4u);
  const std::string expected[] = {t.engine.answer("a", 0, 4), t.engine.answer("a", 1, 4),
                                  t.engine.answer("bc", 0, 4), t.engine.answer("bc", 1, 4)};
  const Joined stream = join(client.post(
      "/v1/completions", "{" + fields + R"(,"stream":true,"stream_options":{"include_usage":true}})"));
  for (int i = 0; i < 4; i++) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["text"], expected[i]);
    EXPECT_EQ(stream.text.at(i), expected[i]);
    EXPECT_EQ(stream.finishes.at(i), 1);
  }
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 3) << "A-USE-2: each prompt once";
  EXPECT_EQ(whole["usage"]["completion_tokens"], 16);
  EXPECT_EQ(stream.usage, whole["usage"]);
}

TEST(Completions, A_PA_2_MaxTokensZero) {
  TestServer t;
  HttpClient client = t.client();
  const json echo =
      client.post("/v1/completions", R"({"prompt":"abc","max_tokens":0,"echo":true,"logprobs":1})").json();
  EXPECT_EQ(echo["choices"][0]["text"], "abc");
  EXPECT_EQ(echo["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(echo["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(echo["usage"]["completion_tokens"], 0);
  const Joined stream =
      join(client.post("/v1/completions", R"({"prompt":"abc","max_tokens":0,"stream":true})"));
  EXPECT_EQ(stream.text.at(0), "");
  EXPECT_EQ(stream.finishes.at(0), 1);
  EXPECT_TRUE(stream.done);
}

TEST(Streams, A_U8_3_EndInMidCharacterIsTheSameInBothModes) {
  TestServer t;
  HttpClient client = t.client();
  for (int n = 1; n <= 8; n++) {
    const std::string fields = fmt::format(R"("prompt":"q","max_tokens":{})", n);
    const json whole = client.post("/v1/completions", "{" + fields + "}").json();
    EXPECT_EQ(whole["choices"][0]["text"], t.engine.answer("q", 0, n));
    EXPECT_EQ(join(client.post("/v1/completions", "{" + fields + R"(,"stream":true})")).text[0],
              whole["choices"][0]["text"]);
  }
}

TEST(Streams, A_USE_1_UsageOnlyWhereAskedFor) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  const std::string url = "/v1/chat/completions";
  const Joined with =
      join(client.post(url, chat_body(R"("stream":true,"stream_options":{"include_usage":true})")));
  for (size_t i = 0; i < with.chunks.size(); i++) {
    ASSERT_TRUE(with.chunks[i].contains("usage"));
    EXPECT_EQ(with.chunks[i]["usage"].is_null(), i + 1 < with.chunks.size());
  }
  EXPECT_TRUE(with.chunks.back()["choices"].empty());
  EXPECT_EQ(with.usage["completion_tokens"], 8);
  EXPECT_EQ(with.usage["prompt_tokens"], kMessages.size());
  const Joined off =
      join(client.post(url, chat_body(R"("stream":true,"stream_options":{"include_usage":false})")));
  for (const json& chunk : off.chunks) EXPECT_FALSE(chunk.contains("usage"));
  const Joined running = join(client.post(
      url,
      chat_body(R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})")));
  int64_t last = 0;
  for (const json& chunk : running.chunks) {
    EXPECT_EQ(chunk["usage"]["prompt_tokens"], kMessages.size());
    EXPECT_GE(chunk["usage"]["completion_tokens"].get<int64_t>(), last);
    last = chunk["usage"]["completion_tokens"];
  }
  EXPECT_EQ(last, 8);
}

TEST(Streams, A_SSE_1_ErrorsBeforeTheFirstTokenArePlainErrors) {
  TestServer t({.refuse = [](const GenerateRequest& r) {
    if (r.max_tokens != 7) return Status();
    return Status::invalid("prompt 5012 + max_tokens 7 > context 4096")
        .with_param("max_tokens")
        .with_error_code("context_length_exceeded");
  }});
  HttpClient client = t.client();
  EXPECT_EQ(client.post("/v1/chat/completions", chat_body(R"("stream":true,"n":0)")).status, 400);
  const ClientResponse r =
      client.post("/v1/completions", R"({"prompt":["a","b"],"max_tokens":7,"stream":true})");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.error("code"), "context_length_exceeded");
  EXPECT_EQ(r.error("param"), "max_tokens");
  EXPECT_EQ(r.headers.at("content-type"), "application/json");
  EXPECT_TRUE(eventually([&] { return idle(t.engine); }));
}

TEST(Streams, A_SSE_1_AnErrorInsideAStreamIsAnEventThenTheEnd) {
  TestServer t({.step = 5ms, .fault = [](const GenerateRequest& r, int32_t, int32_t token) {
                  return r.sampling.top_k == 1 && token == 3 ? Status::internal("page 7 is \xff broken")
                                                             : Status();
                }});
  HttpClient client = t.client();
  const ClientResponse r = client.post("/v1/completions", R"({"prompt":"a","top_k":1,"stream":true})");
  EXPECT_EQ(r.status, 200);
  EXPECT_TRUE(r.complete) << "the stream is closed properly";
  const std::vector<std::string> events = sse_data(r.body);
  const json error = json::parse(events.back());
  EXPECT_EQ(error["error"]["type"], "server_error");
  EXPECT_EQ(error["error"]["message"].get<std::string>().find("page 7"), std::string::npos)
      << "details stay in the log";
  EXPECT_NE(error["error"]["message"].get<std::string>().find(r.headers.at("x-request-id")),
            std::string::npos);
  const ClientResponse whole = client.post("/v1/completions", R"({"prompt":"a","top_k":1})");
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.error("message").find(whole.headers.at("x-request-id")), std::string::npos);
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

TEST(Streams, AnAbortThatNobodyAskedForIsAnError) {
  TestServer t({.step = 20ms, .fault = [](const GenerateRequest&, int32_t, int32_t token) {
                  return token == 3 ? Status(StatusCode::kCancelled, "aborted") : Status();
                }});
  HttpClient client = t.client();
  const ClientResponse whole = client.post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.error("code"), "unavailable");
  const std::vector<std::string> events =
      sse_data(client.post("/v1/completions", R"({"prompt":"a","stream":true})").body);
  ASSERT_GT(events.size(), 1u);
  EXPECT_EQ(json::parse(events.back())["error"]["code"], "unavailable");
  for (size_t i = 0; i + 1 < events.size(); i++)
    EXPECT_TRUE(json::parse(events[i])["choices"][0]["finish_reason"].is_null()) << events[i];
}

TEST(Streams, OneFailedChoiceDoesNotLoseTheOthers) {
  TestServer t({.fault = [](const GenerateRequest&, int32_t choice, int32_t token) {
    return choice == 1 && token == 2 ? Status::internal("boom") : Status();
  }});
  HttpClient client = t.client();
  const json whole = client.post("/v1/completions", R"({"prompt":"a","n":3})").json();
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(whole["choices"][1]["finish_reason"], "error");
  EXPECT_EQ(whole["choices"][1]["error"]["code"], "internal_error");
  EXPECT_EQ(whole["choices"][2]["text"], t.engine.answer("a", 2, 8));
  const Joined stream = join(client.post("/v1/completions", R"({"prompt":"a","n":3,"stream":true})"));
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.reason.at(1), "error");
  EXPECT_EQ(stream.text.at(2), t.engine.answer("a", 2, 8));
}

TEST(Streams, A_SSE_2_ManyStreamsEndExactlyOnce) {
  TestServer t({.max_running = 16, .answer_tokens = 1000});
  std::vector<HttpClient> clients;
  for (int i = 0; i < 60; i++) {
    clients.push_back(t.client());
    clients.back().send(post_text("/v1/chat/completions",
                                  chat_body(fmt::format(R"("stream":true,"max_tokens":{})", 1 + i % 17))));
  }
  for (int i = 0; i < 60; i++) {
    const Joined joined = join(clients[i].read_response());
    EXPECT_TRUE(joined.done);
    EXPECT_EQ(joined.finishes.at(0), 1);
    EXPECT_EQ(joined.reason.at(0), "length");
    EXPECT_EQ(joined.text.at(0), t.engine.answer(kMessages, 0, 1 + i % 17));
  }
}

TEST(Streams, KeepAliveCommentsWhileNothingHappens) {
  ServerConfig config;
  config.sse_keepalive = 30ms;
  TestServer t({}, config);
  t.engine.pause();
  HttpClient client = t.client();
  client.send(post_text("/v1/chat/completions", chat_body(R"("stream":true)")));
  EXPECT_FALSE(client.read_until(": keep-alive\n\n").empty());
  EXPECT_FALSE(client.read_until(": keep-alive\n\n").empty());
  t.engine.resume();
  EXPECT_FALSE(client.read_until("data: [DONE]\n\n").empty());
}

TEST(Overload, A_QF_1_EveryRequestIsAnswered) {
  TestServer t({.step = 100us, .max_running = 8, .queue_limit = 24});
  t.engine.pause();
  std::vector<HttpClient> clients;
  for (int i = 0; i < 120; i++) {
    clients.push_back(t.client());
    clients.back().send(
        post_text("/v1/completions", fmt::format(R"({{"prompt":"a","stream":{}}})", i % 2 == 0)));
  }
  EXPECT_TRUE(eventually([&] { return t.engine.submitted().size() == 120; }));
  EXPECT_EQ(t.client().get("/health").status, 200);
  t.engine.resume();
  int ok = 0, refused = 0;
  for (HttpClient& client : clients) {
    const ClientResponse r = client.read_response();
    ok += r.status == 200;
    if (r.status != 429) continue;
    refused++;
    EXPECT_TRUE(r.headers.contains("retry-after"));
    EXPECT_EQ(r.error("type"), "rate_limit_error");
    EXPECT_EQ(r.error("code"), "queue_full");
  }
  EXPECT_EQ(ok, 32);
  EXPECT_EQ(refused, 88);
}

TEST(Endpoints, ModelsTokenizeDetokenize) {
  TestServer t;
  HttpClient client = t.client();
  EXPECT_EQ(client.get("/v1/models").json()["data"][0]["id"], "fake-model");
  EXPECT_EQ(client.get("/v1/models/fake%2Dmodel").json()["object"], "model");
  EXPECT_EQ(client.get("/v1/mod%65ls").json()["object"], "list") << "any path may be percent-encoded";
  EXPECT_EQ(client.get("/v1/models/").status, 404);
  EXPECT_EQ(client.get("/v1/models/fake%252Dmodel").status, 404) << "decoded once";
  EXPECT_EQ(client.get("/v1/models/%").status, 404);
  const ClientResponse missing = client.get("/v1/models/gpt-4");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.error("code"), "model_not_found");
  EXPECT_EQ(client.post("/tokenize", R"({"content":"ab"})").json()["tokens"], json::parse("[97,98]"));
  EXPECT_EQ(client.post("/tokenize", R"({"prompt":"ab","add_special":true})").json()["tokens"],
            json::parse("[256,97,98]"));
  EXPECT_EQ(client.post("/tokenize", R"({"content":"<s>"})").json()["tokens"], json::parse("[256]"));
  EXPECT_EQ(client.post("/tokenize", R"({"content":"<s>","parse_special":false})").json()["tokens"],
            json::parse("[60,115,62]"));
  EXPECT_EQ(client.post("/tokenize", R"({"prompt":"ab","add_special_tokens":true})").json()["tokens"],
            client.post("/tokenize", R"({"prompt":"ab","add_special":true})").json()["tokens"]);
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[97,256,98]})").json()["content"], "a<s>b");
  EXPECT_EQ(client.get("/tokenizer_info").json(),
            json::parse(R"({"model_max_length":4096,"bos_token":null,"eos_token":"</s>","pad_token":null,
                            "chat_template":"{{ messages }}"})"));
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[]})").json()["content"], "");
  EXPECT_TRUE(client.post("/detokenize", R"({"tokens":[255]})").json().is_object()) << "A-U8-1";
  for (const char* body : {R"({"tokens":[-1]})", R"({"tokens":[999999]})", R"({"tokens":"a"})", "{}"}) {
    EXPECT_EQ(client.post("/detokenize", body).status, 400) << body;
  }
  for (const char* body : {R"({"content":5})", "{}", "x"})
    EXPECT_EQ(client.post("/tokenize", body).status, 400) << body;
}

TEST(Endpoints, MetricsCountRequestsAndLatencies) {
  TestServer t;
  HttpClient client = t.client();
  for (int i = 0; i < 3; i++) client.post("/v1/completions", R"({"prompt":"a","max_tokens":4})");
  client.post("/v1/completions", "x");
  const ClientResponse r = client.get("/metrics");
  EXPECT_EQ(r.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"gapless_http_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 3\n",
        "gapless_http_requests_total{endpoint=\"/v1/completions\",status=\"400\"} 1\n",
        "gapless_time_to_first_token_seconds_count 3\n", "gapless_inter_token_latency_seconds_count 9\n",
        "gapless_e2e_request_latency_seconds_count 3\n", "gapless_http_connections 1\n",
        "gapless_request_generation_tokens_bucket{le=\"1\"} 0\n",
        "gapless_request_generation_tokens_bucket{le=\"4\"} 3\n",
        "gapless_request_generation_tokens_sum 12\n", "gapless_request_prompt_tokens_count 3\n",
        "quantisation=\"", "process_open_fds "}) {
    EXPECT_NE(r.body.find(line), std::string::npos) << line << r.body;
  }
}

}  // namespace
}  // namespace gapless::testing
