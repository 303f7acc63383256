// What routers and operators ask a worker of a fleet.
#include <gtest/gtest.h>

#include <future>

#include "server/router.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kLong =
    R"({"text":"a","rid":"one","sampling_params":{"max_new_tokens":1000,"ignore_eos":true}})";

std::future<ClientResponse> post_later(const TestServer& test, const std::string& path,
                                       const std::string& body) {
  return std::async(std::launch::async, [&test, path, body] { return test.client().post(path, body); });
}

bool running(const TestServer& test, int32_t n) {
  return eventually([&] { return test.engine.load().running + test.engine.load().queued == n; });
}

TEST(Operations, WhatRoutersRead) {
  TestServer test;
  for (const char* path : {"/model_info", "/get_model_info"}) {
    const json info = test.client().get(path).json();
    EXPECT_EQ(info.at("is_generation"), true) << path;
    EXPECT_TRUE(info.at("model_path").is_string());
    EXPECT_TRUE(info.at("tokenizer_path").is_string());
    EXPECT_EQ(info.at("architectures"), json::array({"fake"}));
  }
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const json info = test.client().get(path).json();
    EXPECT_EQ(info.at("served_model_name"), "fake-model") << path;
    EXPECT_EQ(info.at("context_length"), 4096);
    EXPECT_FALSE(info.at("version").get<std::string>().empty());
    EXPECT_TRUE(info.at("max_total_num_tokens").is_number_integer());
    EXPECT_EQ(info.at("disable_overlap_schedule"), false);
    EXPECT_EQ(info.at("internal_states").at(0).at("num_running_reqs"), 0);
  }
}

TEST(Operations, LoadCountsWhatRunsAndWaits) {
  TestServer test({.max_running = 1});
  EXPECT_EQ(test.client().get("/get_load").json(),
            json::parse(R"([{"dp_rank":0,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":0}])"));
  test.engine.pause();
  auto first = post_later(test, "/generate", kLong), second = post_later(test, "/generate", kLong);
  ASSERT_TRUE(running(test, 2));
  EXPECT_TRUE(eventually([&] {
    const json load = test.client().get("/get_load").json().at(0);
    return load.at("num_reqs") == 2 && load.at("num_waiting_reqs") == 1;
  }));
  test.client().post("/abort_request", R"({"abort_all":true})");
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(second.get().status, 200);
}

TEST(Operations, TheCacheIsDroppedOnlyWhileNothingRuns) {
  TestServer test;
  EXPECT_EQ(test.client().post("/flush_cache", "").json(), json::parse(R"({"flushed_tokens":1})"));
  EXPECT_EQ(test.client().get("/flush_cache").status, 200);
  test.engine.pause();
  auto open = post_later(test, "/generate", kLong);
  ASSERT_TRUE(running(test, 1));
  const ClientResponse busy = test.client().post("/flush_cache", "");
  EXPECT_EQ(busy.status, 409);
  EXPECT_EQ(busy.error("code"), "busy");
  EXPECT_EQ(test.engine.flushes, 2);
  test.client().post("/abort_request", R"({"rid":"one"})");
  open.get();
}

TEST(Operations, AbortByNameEndsThatRequestAlone) {
  TestServer test({.step = 1ms});
  auto other =
      post_later(test, "/generate",
                 R"({"text":"b","rid":"two","sampling_params":{"max_new_tokens":60,"ignore_eos":true}})");
  auto one = post_later(test, "/generate", kLong);
  ASSERT_TRUE(running(test, 2));
  EXPECT_EQ(test.client().post("/abort_request", R"({"rid":"nobody"})").json().at("aborted"), 0);
  EXPECT_EQ(test.client().post("/abort_request", R"({"rid":"one"})").json().at("aborted"), 1);
  const json aborted = one.get().json();
  EXPECT_EQ(aborted.at("meta_info").at("finish_reason").at("type"), "abort");
  EXPECT_EQ(aborted.at("output_ids").size(), aborted.at("meta_info").at("completion_tokens"));
  EXPECT_EQ(other.get().json().at("meta_info").at("completion_tokens"), 60);
  EXPECT_EQ(test.client().post("/abort_request", R"({"abort_all":true})").json().at("aborted"), 0)
      << "requests that have ended are forgotten";
}

TEST(Operations, AbortByNumberEndsAllAnswersOfThatRequest) {
  TestServer test;
  test.engine.pause();
  auto one = post_later(test, "/generate", kLong);
  ASSERT_TRUE(running(test, 1));
  auto two = post_later(test, "/generate",
                        R"({"text":"b","sampling_params":{"max_new_tokens":1000,"ignore_eos":true,"n":2}})");
  ASSERT_TRUE(running(test, 2));
  EXPECT_EQ(test.client().post("/abort_request", R"({"id":3})").json().at("aborted"), 0);
  EXPECT_EQ(test.client().post("/abort_request", R"({"id":2})").json().at("aborted"), 1);
  const json aborted = two.get().json();
  ASSERT_EQ(aborted.size(), 2u);
  for (const json& answer : aborted)
    EXPECT_EQ(answer.at("meta_info").at("finish_reason").at("type"), "abort");
  EXPECT_EQ(test.engine.load().queued + test.engine.load().running, 1);
  EXPECT_EQ(test.client().post("/abort_request", R"({"id":1,"rid":"one"})").json().at("aborted"), 1);
  EXPECT_EQ(one.get().status, 200);
}

TEST(Operations, AbortReachesStreamsAndOtherEndpoints) {
  TestServer test;
  test.engine.pause();
  auto stream = post_later(test, "/generate", kLong.substr(0, kLong.size() - 1) + R"(,"stream":true})");
  auto chat = post_later(test, "/v1/completions", R"({"prompt":"a","max_tokens":1000})");
  ASSERT_TRUE(running(test, 2));
  EXPECT_EQ(test.client().post("/abort_request", R"({"abort_all":true})").json().at("aborted"), 2);
  const std::vector<std::string> events = sse_data(stream.get().body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(json::parse(events[0]).at("meta_info").at("finish_reason").at("type"), "abort");
  EXPECT_EQ(chat.get().status, 503) << "OpenAI's clients know no aborts";
}

TEST(Operations, AbortSaysWhatItTakes) {
  TestServer test;
  for (const char* body : {R"({})", R"({"rid":7})", R"({"abort_all":false})"}) {
    const ClientResponse r = test.client().post("/abort_request", body);
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_EQ(r.error("param"), "rid") << body;
  }
  EXPECT_EQ(test.client().post("/abort_request", R"({"abort_all":1})").error("param"), "abort_all");
  for (const char* id : {"0", "-1", "1.5", "\"1\"", "1e30", "9007199254740993"}) {
    const ClientResponse r = test.client().post("/abort_request", fmt::format(R"({{"id":{}}})", id));
    EXPECT_EQ(r.status, 400) << id;
    EXPECT_EQ(r.error("param"), "id") << id;
  }
  EXPECT_EQ(test.client().post("/abort_request", std::string(10'000, ' ')).status, 400);
}

TEST(Operations, AProbeGeneratesOneToken) {
  TestServer test;
  EXPECT_EQ(test.client().get("/health_generate").status, 200);
  ASSERT_EQ(test.engine.submitted().size(), 1u);
  EXPECT_EQ(test.engine.submitted()[0].max_tokens, 1);
  EXPECT_EQ(test.engine.steps(), 1);
  TestServer broken({.refuse = [](const GenerateRequest&) {
    return Status(StatusCode::kUnavailable, "the device is lost");
  }});
  EXPECT_EQ(broken.client().get("/health_generate").status, 503);
}

// Asked as if it had come half a minute ago.
TEST(Operations, AProbeGivesUpAndEndsItsRequest) {
  FakeEngine engine;
  engine.pause();
  Router router{ServerConfig{}};
  router.attach(engine);
  HttpRequest request;
  request.method = "GET";
  request.path = "/health_generate";
  request.received = std::chrono::steady_clock::now();
  for (const bool late : {false, true}) {
    if (late) request.received -= 30s;
    Reply reply = router.dispatch(request);
    auto* pending = std::get_if<std::shared_ptr<PendingResponse>>(&reply);
    ASSERT_NE(pending, nullptr);
    (*pending)->start([] {});
    EXPECT_TRUE((*pending)->take().empty());
    const PendingResponse::Part part = (*pending)->keepalive();
    EXPECT_EQ(part.empty(), !late);
    EXPECT_EQ(late ? part.head->status : 503, 503);
    if (!late) (*pending)->cancel(Status(StatusCode::kCancelled, "gone"));
  }
  EXPECT_TRUE(eventually([&] { return engine.aborts() == 2 && idle(engine); }));
}

}  // namespace
}  // namespace gapless::testing
