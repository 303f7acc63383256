// Clients that misbehave: they vanish, read slowly, or come in crowds.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;

const std::string kLong = R"({"prompt":"a","max_tokens":1000000,"ignore_eos":true,"stream":false})";
const std::string kLongStream = R"({"prompt":"a","max_tokens":1000000,"ignore_eos":true,"stream":true})";

int64_t counter(const TestServer& t, const std::string& name) {
  const std::string text = t.client().get("/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size() + 2));
}

TEST(Disconnect, A_AB_1_InEveryPhase) {
  TestServer t({.step = 2ms, .max_running = 2});
  for (const std::string& body : {kLong, kLongStream}) {
    for (const bool reset : {false, true}) {
      HttpClient decoding = t.client(), prefilling = t.client(), queued = t.client();
      const int64_t aborts = t.engine.aborts();
      decoding.send(post_text("/v1/completions", body));
      prefilling.send(post_text("/v1/completions", body));
      EXPECT_TRUE(eventually([&] { return t.engine.load().running == 2; }));
      queued.send(post_text("/v1/completions", body));
      EXPECT_TRUE(eventually([&] { return t.engine.load().queued == 1; }));
      for (HttpClient* client : {&queued, &decoding, &prefilling}) reset ? client->reset() : client->close();
      EXPECT_TRUE(eventually([&] { return idle(t.engine); }));
      EXPECT_EQ(t.engine.aborts(), aborts + 3);
    }
  }
  EXPECT_TRUE(eventually([&] { return counter(t, "gapless_http_client_disconnects_total") == 12; }));
}

TEST(Disconnect, A_AB_1_WithinAStep) {
  TestServer t({.step = 50ms});
  // One of several: on a busy machine the server may come to know late.
  int64_t steps_after = 3;
  for (int64_t attempt = 1; attempt <= 8 && steps_after > 2; attempt++) {
    const int64_t begin = t.engine.steps();
    HttpClient client = t.client();
    client.send(post_text("/v1/completions", kLong));
    EXPECT_TRUE(eventually([&] { return t.engine.steps() >= begin + 2; }));
    const int64_t before = t.engine.steps();
    client.close();
    EXPECT_TRUE(eventually([&] { return t.engine.aborts() == attempt; }));
    steps_after = t.engine.steps() - before;
  }
  EXPECT_LE(steps_after, 2) << "the step that runs, and at most the one that had begun";
}

TEST(Disconnect, AClientThatClosesItsSendingSideCountsAsGone) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  client.send(post_text("/v1/completions", kLong));
  EXPECT_TRUE(eventually([&] { return t.engine.load().running == 1; }));
  client.end_sending();
  EXPECT_TRUE(client.closed_within(5));
  EXPECT_TRUE(eventually([&] { return t.engine.aborts() == 1; }));
}

TEST(Disconnect, AllPromptsAndChoicesOfARequestAreAborted) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  client.send(post_text("/v1/completions",
                        R"({"prompt":["a","b","c"],"n":2,"max_tokens":1000000,"ignore_eos":true})"));
  EXPECT_TRUE(eventually([&] { return t.engine.load().running == 3; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return idle(t.engine); }));
  EXPECT_EQ(t.engine.aborts(), 3);
}

TEST(Disconnect, APipelinedRequestDoesNotHideTheDisconnect) {
  TestServer t({.step = 1ms});
  HttpClient client = t.client();
  client.send(post_text("/v1/completions", kLong) + "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return t.engine.load().running == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return idle(t.engine); }));
}

TEST(Disconnect, A_AB_2_KilledClientsAtRandomMomentsLeaveNothing) {
  TestServer t({.step = 300us, .max_running = 8, .answer_tokens = 40});
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; round++) {
    std::vector<HttpClient> clients;
    for (int i = 0; i < 20; i++) {
      clients.push_back(t.client());
      clients.back().send(post_text("/v1/completions", i % 2 ? kLong : kLongStream));
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      if (random() % 4 == 0) clients[random() % clients.size()].reset();
    }
    for (HttpClient& client : clients) {
      if (client.connected()) random() % 2 ? client.close() : client.reset();
    }
  }
  EXPECT_TRUE(eventually([&] { return idle(t.engine) && t.server->stats().connections == 0; }));
  HttpClient normal = t.client();
  EXPECT_EQ(normal.post("/v1/completions", R"({"prompt":"a"})").json()["choices"][0]["text"],
            t.engine.answer("a", 0, 16));
}

TEST(Neighbours, MalformedRequestsNeverDisturbAStream) {
  ServerConfig config;
  config.header_timeout = config.body_timeout = 100ms;  // of requests that are cut short
  TestServer t({.step = 1ms, .answer_tokens = 1'000'000}, config);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  HttpClient neighbour = t.client();
  neighbour.send(
      post_text("/v1/completions", R"({"prompt":"a","max_tokens":400,"ignore_eos":true,"stream":true})"));
  const std::string good =
      post_text("/v1/chat/completions", R"({"messages":[{"role":"user","content":"h"}],"max_tokens":2})");
  for (int i = 0; i < 300; i++) {
    std::string bad = good;
    for (uint32_t n = 1 + random() % 5; n > 0; n--) bad[random() % bad.size()] = static_cast<char>(random());
    bad.resize(bad.size() - (random() % 3 == 0 ? random() % bad.size() : 0));
    HttpClient client = t.client();
    client.send(bad);
    if (random() % 8 == 0) client.get("/health");
  }
  const ClientResponse r = neighbour.read_response();
  std::string text;
  for (const std::string& event : sse_data(r.body)) {
    if (event != "[DONE]") text += nlohmann::json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, t.engine.answer("a", 0, 400));
  EXPECT_TRUE(eventually([&] { return idle(t.engine) && t.server->stats().connections == 1; }));
}

TEST(SlowReaders, A_HT_7_StalledOnesAreDroppedTheFastOneIsNotDisturbed) {
  ServerConfig config;
  config.write_timeout = 800ms;
  TestServer t({.step = 200us, .answer_tokens = 3000, .word_repeat = 200}, config);
  std::vector<HttpClient> stalled;
  for (int i = 0; i < 10; i++) {
    stalled.push_back(t.client());
    stalled.back().shrink_receive_buffer(4096);
    stalled.back().send(post_text("/v1/completions", kLongStream));
  }
  HttpClient fast = t.client();
  const ClientResponse r =
      fast.post("/v1/completions", R"({"prompt":"b","max_tokens":500,"ignore_eos":true,"stream":true})");
  EXPECT_EQ(sse_data(r.body).back(), "[DONE]");
  EXPECT_TRUE(eventually([&] { return idle(t.engine); })) << "the stalled ones were aborted";
  EXPECT_EQ(t.engine.aborts(), 10);
  EXPECT_TRUE(eventually([&] { return counter(t, "gapless_http_slow_readers_dropped_total") == 10; }));
}

TEST(SlowReaders, A_HT_7_TheBacklogIsBounded) {
  ServerConfig config;
  config.write_timeout = 60s;
  config.max_stream_backlog_bytes = 4 << 20;
  TestServer t({.answer_tokens = 3000, .word_repeat = 2000}, config);
  HttpClient stalled = t.client();
  stalled.shrink_receive_buffer(4096);
  stalled.send(post_text("/v1/completions", kLongStream));
  EXPECT_TRUE(eventually([&] { return t.engine.aborts() == 1; }));
}

TEST(SlowReaders, TokensCoalesceAndTheTextIsWhole) {
  TestServer t({.step = 10us, .word_repeat = 300});
  HttpClient slow = t.client();
  slow.send(
      post_text("/v1/completions", R"({"prompt":"a","max_tokens":1500,"ignore_eos":true,"stream":true})"));
  EXPECT_TRUE(eventually([&] { return idle(t.engine) && !t.engine.submitted().empty(); }));
  const ClientResponse r = slow.read_response();
  const std::vector<std::string> events = sse_data(r.body);
  EXPECT_LT(events.size(), 1000u) << "fewer events than tokens";
  std::string text;
  for (const std::string& event : events) {
    if (event != "[DONE]") text += nlohmann::json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, t.engine.answer("a", 0, 1500));
}

TEST(Crowd, A_HT_6_IdleConnectionsAndStreamsLeaveHealthFast) {
  TestServer t({.step = 5ms, .max_running = 1000, .answer_tokens = 1'000'000});
  std::vector<HttpClient> idle_clients, streams;
  for (int i = 0; i < 400; i++) {
    idle_clients.push_back(t.client());
    ASSERT_TRUE(idle_clients.back().connected());
    if (i % 4 == 0) {
      EXPECT_EQ(idle_clients.back().get("/health").status, 200);
    }
  }
  for (int i = 0; i < 40; i++) {
    streams.push_back(t.client());
    streams.back().send(post_text("/v1/completions", kLongStream));
  }
  for (HttpClient& stream : streams)
    EXPECT_FALSE(stream.read_until("data: ").empty()) << "all are admitted at once";
  // The median: on a busy machine single ones wait for a core.
  std::vector<std::chrono::steady_clock::duration> took;
  HttpClient prober = t.client();
  for (int i = 0; i < 50; i++) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(prober.get("/health").status, 200);
    took.push_back(std::chrono::steady_clock::now() - begin);
  }
  std::nth_element(took.begin(), took.begin() + 25, took.end());
  EXPECT_LT(took[25], 100ms);
  EXPECT_EQ(t.server->stats().connections, 441);
  for (HttpClient& client : idle_clients) client.close();
  for (HttpClient& client : streams) client.close();
  EXPECT_TRUE(eventually([&] { return idle(t.engine) && t.server->stats().connections == 1; }));
}

TEST(Lifetime, ResponsesMayOutliveTheServer) {
  FakeEngine engine({.step = 1ms, .answer_tokens = 1'000'000});
  for (int round = 0; round < 5; round++) {
    ServerConfig config;
    config.port = 0;
    auto server = HttpServer::create(config);
    ASSERT_TRUE(server.is_ok());
    (*server)->set_engine(engine);
    HttpClient client((*server)->port());
    client.send(post_text("/v1/completions", round % 2 ? kLong : kLongStream));
    EXPECT_TRUE(eventually([&] { return engine.load().running == 1; }));
    server->reset();
    EXPECT_TRUE(client.closed_within(5));
    EXPECT_TRUE(eventually([&] { return idle(engine); }));
  }
}

}  // namespace
}  // namespace gapless::testing
