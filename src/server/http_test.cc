// The server as a program on the network: sockets, parsing, limits, keys, cross-origin, loading and stopping.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>

#include "server/access.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using namespace std::chrono_literals;

const std::string kHi = R"({"prompt":"hi","max_tokens":4})";

Status listen_status(const std::string& host, uint16_t port) {
  ServerConfig config;
  config.host = host;
  config.port = port;
  return HttpServer::create(config).status();
}

TEST(Http, A_HT_9_PortInUseIsAnErrorWithAddressAndReason) {
  TestServer first;
  const Status status = listen_status("127.0.0.1", first.server->port());
  EXPECT_NE(status.message().find("127.0.0.1:" + std::to_string(first.server->port())), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("Address already in use"), std::string::npos);
  EXPECT_NE(listen_status("unix:/nonexistent-dir/s", 0).message().find("No such file"), std::string::npos);
  EXPECT_FALSE(listen_status("no.such.host.invalid", 0).is_ok());
  EXPECT_FALSE(listen_status("unix:" + std::string(200, 'x'), 0).is_ok());
}

bool machine_has_ipv6() {
  const int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool ok = ::bind(fd, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  ::close(fd);
  return ok;
}

TEST(Http, A_HT_9_DualStack) {
  if (!machine_has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  ServerConfig config;
  config.host = "[::]";
  TestServer both({}, config);
  EXPECT_EQ(HttpClient(both.server->port(), "127.0.0.1").get("/health").status, 200);
  EXPECT_EQ(HttpClient(both.server->port(), "::1").get("/health").status, 200);
}

TEST(Http, A_HT_9_AHostNameListensOnAllItsAddresses) {
  ServerConfig config;
  config.host = "localhost";
  TestServer t({}, config);
  EXPECT_EQ(t.client().get("/health").status, 200);
  for (const std::string& url : t.server->urls()) {
    EXPECT_TRUE(url.ends_with(":" + std::to_string(t.server->port()))) << url << ": one port for all";
  }
}

TEST(Http, A_HT_9_UnixSockets) {
  ServerConfig config;
  const std::string path = ::testing::TempDir() + "gapless-" + std::to_string(::getpid()) + ".sock";
  config.host = "unix:" + path;
  {
    TestServer local({}, config);
    EXPECT_EQ(HttpClient::unix_socket(path).get("/health").status, 200);
    EXPECT_FALSE(HttpServer::create(config).is_ok()) << "in use by a live server";
    EXPECT_EQ(local.server->urls().front(), "unix:" + path);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "removed at the end";
}

TEST(Http, PortFileTellsThePort) {
  ServerConfig config;
  config.port_file = ::testing::TempDir() + "gapless-port-" + std::to_string(::getpid());
  TestServer t({}, config);
  std::ifstream file(config.port_file);
  int port = 0;
  file >> port;
  EXPECT_EQ(port, t.server->port());
  std::remove(config.port_file.c_str());
}

TEST(Http, A_HC_1_LoadingIsAliveButNotReady) {
  ServerConfig config;
  config.port = 0;
  auto server = HttpServer::create(config);
  ASSERT_TRUE(server.is_ok());
  HttpClient client((*server)->port());
  EXPECT_EQ(client.get("/health").status, 200);
  for (const char* path : {"/ready", "/v1/models", "/metrics"}) {
    const ClientResponse r = client.get(path);
    EXPECT_EQ(r.status, 503) << path;
    EXPECT_EQ(r.headers.at("retry-after"), "1");
    EXPECT_NE(r.error("message").find("loading"), std::string::npos);
  }
  EXPECT_EQ(client.post("/v1/completions", kHi).status, 503);
  FakeEngine engine;
  (*server)->set_engine(engine);
  EXPECT_EQ(client.get("/ready").status, 200);
  EXPECT_EQ(client.post("/v1/completions", kHi).status, 200);
  engine.set_ready(Status(StatusCode::kUnavailable, "no step finished for 30 s"));
  EXPECT_EQ(client.get("/ready").status, 503);
  EXPECT_EQ(client.get("/health").status, 200);
  server->reset();
}

TEST(Http, UnknownPathsAndMethods) {
  TestServer t;
  HttpClient client = t.client();
  const ClientResponse missing = client.get("/v1/nothing%ff\x80");
  EXPECT_TRUE(missing.status == 404 || missing.status == 400);
  EXPECT_TRUE(missing.json().is_object()) << missing.body;
  HttpClient second = t.client();
  const ClientResponse method = second.get("/v1/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(method.error("code"), "method_not_allowed");
  EXPECT_EQ(second.post("/health", "").status, 405);
  second.send("DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(second.read_response().status, 405);
  second.send("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  const ClientResponse head = second.read_response(/*head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_GT(std::stoi(head.headers.at("content-length")), 10);
  EXPECT_EQ(second.get("/").status, 200);
  EXPECT_EQ(second.get("http://host/health?x=1").status, 200) << "an absolute target with a query";
}

TEST(Http, A_HT_1_2_3_BadBodiesAre400AndTheNextRequestWorks) {
  TestServer t;
  HttpClient client = t.client();
  const std::string deep(3000, '[');
  for (const std::string& body :
       {std::string(""), std::string("x"), std::string(R"({"prompt":"a"} x)"), std::string("[]"),
        std::string("{\"prompt\":\"\xff\"}"), std::string(R"({"prompt":"\ud83d"})"), "{\"tools\":" + deep,
        "{\"stop\":" + std::string(100'000, '['), std::string("{}")}) {
    const ClientResponse r = client.post("/v1/completions", body);
    EXPECT_EQ(r.status, 400) << body.substr(0, 40);
    EXPECT_EQ(r.error("type"), "invalid_request_error");
    EXPECT_EQ(r.headers.at("content-type"), "application/json");
    EXPECT_EQ(client.post("/v1/completions", kHi).status, 200);
  }
  EXPECT_TRUE(idle(t.engine));
}

TEST(Http, A_HT_4_ContentTypeIsNotAskedFor) {
  TestServer t;
  HttpClient client = t.client();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(kHi.size()) +
              "\r\n\r\n" + kHi);
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.post("/v1/completions", kHi, "Content-Encoding: gzip\r\n").status, 415);
}

TEST(Http, A_HT_2_LargeBodiesAre413AndTheAnswerArrives) {
  ServerConfig config;
  config.max_body_bytes = 1 << 20;
  TestServer t({}, config);
  HttpClient client = t.client();
  const ClientResponse declared = client.post("/v1/completions", std::string(3 << 20, 'x'));
  EXPECT_EQ(declared.status, 413);
  EXPECT_EQ(declared.headers.at("connection"), "close");
  EXPECT_NE(declared.error("message").find("1048576"), std::string::npos);
  HttpClient chunked = t.client();
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; i++) {
    if (!chunked.send("100000\r\n" + std::string(1 << 20, 'x') + "\r\n")) break;
  }
  EXPECT_EQ(chunked.read_response().status, 413);
  EXPECT_EQ(t.client().get("/health").status, 200);
}

TEST(Http, LargeGoodBodiesAreParsedOffTheLoop) {
  TestServer t;
  HttpClient client = t.client();
  const std::string prompt(300'000, 'a');
  const ClientResponse r = client.post("/v1/completions", R"({"max_tokens":2,"prompt":")" + prompt + "\"}");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.json()["usage"]["prompt_tokens"], 300'000);
  EXPECT_EQ(client.post("/v1/completions", "{\"prompt\":\"" + prompt).status, 400);
}

TEST(Http, HeaderLimits) {
  TestServer t;
  HttpClient client = t.client();
  const ClientResponse r = client.get("/health", "X-Big: " + std::string(64 << 10, 'x') + "\r\n");
  EXPECT_EQ(r.status, 431);
  HttpClient garbage = t.client();
  garbage.send("\x16\x03\x01\x02garbage\r\n\r\n");
  EXPECT_EQ(garbage.read_response().status, 400);
  EXPECT_TRUE(garbage.closed_within(8));
}

TEST(Http, RequestSmugglingShapesAreRefused) {
  TestServer t;
  for (const char* headers :
       {"Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: -1\r\n", "Content-Length: 18446744073709551616\r\n"}) {
    HttpClient client = t.client();
    client.send(std::string("POST /v1/completions HTTP/1.1\r\nHost: x\r\n") + headers + "\r\n");
    const ClientResponse r = client.read_response();
    EXPECT_TRUE(r.status == 400 || r.status == 413) << headers << r.status;
  }
}

TEST(Http, HeadsThatRfc9112RefusesOrForgives) {
  TestServer t;
  const auto status_of = [&](const std::string& bytes) {
    HttpClient client = t.client();
    client.send(bytes);
    return client.read_response().status;
  };
  EXPECT_EQ(status_of("\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200) << "one empty line is ignored";
  EXPECT_EQ(status_of("\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
  EXPECT_EQ(status_of("\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 400) << "not two";
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /health HTTP/1.1\r\nHost:\r\n\r\n"), 200) << "an empty one is one";
  EXPECT_EQ(status_of("GET /health HTTP/1.0\r\n\r\n"), 200);
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ";
  EXPECT_EQ(status_of(post + "gzip\r\n\r\n"), 501);
  EXPECT_EQ(status_of(post + "gzip, chunked\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(status_of(post + fmt::format("identity\r\nContent-Length: {}\r\n\r\n", kHi.size()) + kHi), 200);
}

TEST(Http, AnEmptyLineBetweenRequestsAndADateInEveryAnswer) {
  TestServer t;
  HttpClient client = t.client();
  for (int i = 0; i < 3; i++) {
    client.send(post_text("/v1/completions", kHi) + "\r\n");
    const ClientResponse r = client.read_response();
    EXPECT_EQ(r.status, 200);
    std::tm parts{};
    ASSERT_NE(::strptime(r.headers.at("date").c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts), nullptr);
    EXPECT_NEAR(double(::timegm(&parts)), double(std::time(nullptr)), 30);
  }
}

TEST(Http, ChunkedBodiesAndExpectContinue) {
  TestServer t;
  HttpClient client = t.client();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" +
              kHi.substr(0, 5) + "\r\n");
  std::this_thread::sleep_for(20ms);
  client.send(fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", kHi.size() - 5, kHi.substr(5)));
  EXPECT_EQ(client.read_response().status, 200);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: ";
  client.send(head + std::to_string(kHi.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 100);
  client.send(kHi);
  EXPECT_EQ(client.read_response().status, 200);
  client.send("POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 404) << "refused without asking for the body";
}

TEST(Http, PipelinedRequestsAreAnsweredInOrder) {
  TestServer t({.step = 2ms});
  HttpClient client = t.client();
  client.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":3,"stream":true})") +
              "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" +
              post_text("/v1/completions", R"({"prompt":"b","max_tokens":2})") +
              "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const ClientResponse stream = client.read_response();
  EXPECT_EQ(sse_data(stream.body).back(), "[DONE]");
  EXPECT_EQ(client.read_response().json()["object"], "list");
  EXPECT_EQ(client.read_response().json()["choices"][0]["text"], t.engine.answer("b", 0, 2));
  EXPECT_EQ(client.read_response().json()["status"], "ok");
  EXPECT_EQ(t.engine.aborts(), 0);
}

TEST(Http, Http10ClosesAfterTheResponse) {
  TestServer t;
  HttpClient client = t.client();
  const std::string body = R"({"prompt":"a","max_tokens":3,"stream":true})";
  client.send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const ClientResponse r = client.read_response();
  EXPECT_FALSE(r.headers.contains("transfer-encoding"));
  EXPECT_EQ(sse_data(r.body).back(), "[DONE]");
  HttpClient closing = t.client();
  EXPECT_EQ(closing.get("/health", "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(closing.closed_within(5));
}

TEST(Http, SlowRequestsTimeOut) {
  ServerConfig config;
  config.header_timeout = 150ms;
  config.body_timeout = 150ms;
  config.idle_timeout = 300ms;
  TestServer t({}, config);
  HttpClient header = t.client(), body = t.client(), silent = t.client();
  header.send("GET /health HT");
  body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(header.read_response().status, 408);
  EXPECT_EQ(body.read_response().status, 408);
  EXPECT_TRUE(silent.closed_within(5)) << "idle for too long";
  TestServer patient;
  HttpClient steady = patient.client();
  for (const char c : std::string("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")) {
    steady.send(std::string(1, c));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(steady.read_response().status, 200) << "in pieces but in time";
}

TEST(Http, A_HT_5_PreflightNeedsNoKeyAndErrorsCarryCors) {
  ServerConfig config;
  config.api_keys = {"secret", "other"};
  TestServer t({}, config);
  HttpClient client = t.client();
  const std::string origin = "Origin: http://page.example\r\n";
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + origin +
              "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
              "authorization,content-type\r\n\r\n");
  const ClientResponse preflight = client.read_response();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://page.example");
  EXPECT_NE(preflight.headers.at("access-control-allow-headers").find("authorization"), std::string::npos);
  const ClientResponse refused = client.post("/v1/completions", kHi, origin);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.error("code"), "invalid_api_key");
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "http://page.example");
  EXPECT_EQ(client.post("/v1/completions", kHi, "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(client.post("/v1/completions", kHi, "Authorization: Basic secret\r\n").status, 401);
  EXPECT_EQ(client.get("/v1/models").status, 401);
  EXPECT_EQ(client.get("/nowhere").status, 401) << "nothing is told without a key";
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/ready").status, 200);
  const ClientResponse good = client.post("/v1/completions", kHi, origin + "Authorization: Bearer other\r\n");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.headers.at("access-control-allow-origin"), "http://page.example");
  EXPECT_EQ(client.post("/v1/completions", kHi, "Authorization: bearer secret\r\n").status, 200);
}

TEST(Http, CorsOriginsCanBeLimited) {
  ServerConfig config;
  config.cors_origins = {"http://good.example"};
  TestServer t({}, config);
  HttpClient client = t.client();
  EXPECT_TRUE(client.get("/health", "Origin: http://good.example\r\n")
                  .headers.contains("access-control-allow-origin"));
  EXPECT_FALSE(client.get("/health", "Origin: http://bad.example\r\n")
                   .headers.contains("access-control-allow-origin"));
}

TEST(Http, ApiKeyFile) {
  const std::string path = ::testing::TempDir() + "gapless-keys-" + std::to_string(::getpid());
  std::ofstream(path) << "# keys\nabc\r\n\ndef\n";
  EXPECT_EQ(read_api_key_file(path).value(), (std::vector<std::string>{"abc", "def"}));
  std::ofstream(path) << "# none\n";
  EXPECT_FALSE(read_api_key_file(path).is_ok());
  std::remove(path.c_str());
  EXPECT_NE(read_api_key_file(path).status().message().find("No such file"), std::string::npos);
}

TEST(Http, RequestIdsAreEchoedIfSafe) {
  TestServer t;
  HttpClient client = t.client();
  EXPECT_EQ(client.get("/health", "X-Request-Id: abc-1.2:3_Z\r\n").headers.at("x-request-id"), "abc-1.2:3_Z");
  const std::string generated = client.get("/health", "X-Request-Id: a b\"<>\r\n").headers.at("x-request-id");
  EXPECT_EQ(generated.rfind("req-", 0), 0u);
  EXPECT_NE(client.get("/health").headers.at("x-request-id"), generated);
  EXPECT_EQ(client.get("/health", "X-Request-Id: " + std::string(200, 'a') + "\r\n")
                .headers.at("x-request-id")
                .size(),
            20u);
}

TEST(Http, A_HT_8_BeyondTheConnectionLimitThereIsA503) {
  rlimit limit{};
  ServerConfig config;
  config.max_connections = 4;
  TestServer t({}, config);
  getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max) << "the soft limit is raised";
  std::vector<HttpClient> clients;
  for (int i = 0; i < 4; i++) {
    clients.push_back(t.client());
    EXPECT_EQ(clients.back().get("/health").status, 200);
  }
  for (int i = 0; i < 3; i++) {
    HttpClient extra = t.client();
    const ClientResponse r = extra.get("/health");
    EXPECT_EQ(r.status, 503);
    EXPECT_EQ(r.headers.at("retry-after"), "1");
    extra.close();
  }
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return t.client().get("/health").status == 200; }));
}

TEST(Http, A_HT_10_ShutdownDrainsThenEnds) {
  TestServer t({.answer_tokens = 20});
  t.engine.pause();
  HttpClient streaming = t.client(), waiting = t.client(), idle_client = t.client();
  EXPECT_EQ(idle_client.get("/health").status, 200);
  streaming.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":100,"stream":true})"));
  waiting.send(post_text("/v1/completions", R"({"prompt":"b","max_tokens":100})"));
  EXPECT_TRUE(eventually([&] { return t.engine.load().running == 2; }));
  t.server->shutdown();
  EXPECT_EQ(idle_client.get("/ready").status, 503);
  EXPECT_EQ(t.client().get("/health").status, 200) << "alive while it drains";
  const ClientResponse late = t.client().post("/v1/completions", kHi);
  EXPECT_EQ(late.status, 503);
  EXPECT_TRUE(late.headers.contains("retry-after"));
  t.engine.resume();
  EXPECT_FALSE(streaming.read_until("[DONE]").empty()) << "what runs may finish";
  EXPECT_EQ(waiting.read_response().json()["choices"][0]["text"], t.engine.answer("b", 0, 20));
  t.server->wait();
  EXPECT_FALSE(t.client().connected());
  EXPECT_EQ(t.engine.aborts(), 0);
}

TEST(Http, A_HT_10_AfterTheTimeoutStreamsGetAnErrorEvent) {
  ServerConfig config;
  config.shutdown_timeout = 100ms;
  TestServer t({.step = 5ms, .answer_tokens = 1'000'000}, config);
  HttpClient streaming = t.client(), waiting = t.client();
  streaming.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":1000000,"stream":true})"));
  waiting.send(post_text("/v1/completions", R"({"prompt":"b","max_tokens":1000000})"));
  EXPECT_FALSE(streaming.read_until("data: ").empty());
  EXPECT_TRUE(eventually([&] { return t.engine.load().running == 2; }));
  t.server->shutdown();
  t.server->wait();
  const std::string before =
      streaming.read_until(R"(data: {"error":{"message":"the server is shutting down")");
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(before.find("\"abort\""), std::string::npos) << "one end, not two";
  EXPECT_FALSE(streaming.read_until("0\r\n\r\n").empty()) << "the response ends properly";
  EXPECT_EQ(waiting.read_response().status, 503);
  EXPECT_TRUE(eventually([&] { return idle(t.engine); }));
  EXPECT_EQ(t.engine.aborts(), 2);
}

TEST(Http, A_HT_10_ASecondShutdownStopsAtOnce) {
  TestServer t({.step = 5ms, .answer_tokens = 1'000'000});
  HttpClient streaming = t.client();
  streaming.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":1000000,"stream":true})"));
  EXPECT_FALSE(streaming.read_until("data: ").empty());
  const auto begin = std::chrono::steady_clock::now();
  t.server->shutdown();
  t.server->shutdown();
  t.server->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, ServerConfig{}.shutdown_timeout / 2);
  EXPECT_TRUE(streaming.closed_within(5));
  EXPECT_TRUE(eventually([&] { return idle(t.engine); }));
}

TEST(Http, AnIdleServerStopsAtOnceAndKeepAliveIsReused) {
  TestServer t;
  HttpClient client = t.client();
  for (int i = 0; i < 50; i++) ASSERT_EQ(client.get("/health").status, 200);
  EXPECT_TRUE(eventually([&] { return t.server->stats().requests == 50; }));
  const auto begin = std::chrono::steady_clock::now();
  t.server->shutdown();
  t.server->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, ServerConfig{}.shutdown_timeout / 2);
}

}  // namespace
}  // namespace gapless::testing
