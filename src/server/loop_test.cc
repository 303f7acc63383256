// /scheduler/loop: shows and switches the event loop of a running server.
#include <gtest/gtest.h>

#include <spdlog/sinks/ostream_sink.h>
#include <future>

#include <sstream>

#include "server/router.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

TEST(SchedulerLoop, IsSwitched) {
  TestServer test;
  const ClientResponse normal = test.client().post("/scheduler/loop", R"({"loop":"normal"})");
  ASSERT_EQ(normal.status, 200) << normal.body;
  EXPECT_EQ(normal.json().at("loop"), "normal");
  EXPECT_EQ(test.engine.event_loop(), EventLoop::kNormal);
  EXPECT_EQ(test.client().post("/scheduler/loop", R"({"loop":"overlap"})").status, 200);
  EXPECT_EQ(test.engine.event_loop(), EventLoop::kOverlap);
}

TEST(SchedulerLoop, SaysWhatThereIs) {
  TestServer test;
  for (const char* body : {R"({"loop":"fast"})", R"({})", R"({"loop":7})"}) {
    const ClientResponse response = test.client().post("/scheduler/loop", body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(response.error("param"), "loop") << body;
  }
  const std::string message = test.client().post("/scheduler/loop", "{}").error("message");
  EXPECT_EQ(message, "loop is missing: 'overlap' or 'normal'");
  EXPECT_EQ(test.engine.event_loop(), EventLoop::kOverlap);
}

TEST(SchedulerLoop, IsShown) {
  TestServer test;
  for (const char* loop : {"overlap", "normal"}) {
    test.engine.switch_loop(std::string(loop) == "normal" ? EventLoop::kNormal : EventLoop::kOverlap, [] {});
    const ClientResponse shown = test.client().get("/scheduler/loop");
    ASSERT_EQ(shown.status, 200) << shown.body;
    EXPECT_EQ(shown.json(), nlohmann::json({{"loop", loop}}));
  }
  HttpClient client = test.client();
  client.send("PUT /scheduler/loop HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.read_response().headers.at("allow"), "GET, HEAD, POST, OPTIONS");
}

TEST(SchedulerLoop, ASwitchIsLogged) {
  std::ostringstream lines;
  const std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  {
    TestServer test;  // its threads log until it has stopped
    spdlog::set_level(spdlog::level::info);
    EXPECT_EQ(test.client().post("/scheduler/loop", R"({"loop":"normal"})").status, 200);
  }
  spdlog::set_default_logger(before);
  EXPECT_NE(lines.str().find("loop: normal"), std::string::npos) << lines.str();
}

TEST(SchedulerLoop, NoThreadWaitsForASwitch) {
  TestServer test;
  test.engine.hold_switches = true;
  std::vector<std::future<ClientResponse>> switches;
  for (int i = 0; i < 8; i++) {
    switches.push_back(std::async(
        std::launch::async, [&] { return test.client().post("/scheduler/loop", R"({"loop":"normal"})"); }));
  }
  EXPECT_TRUE(eventually([&] { return test.engine.held_switches.size() == 8; }));
  EXPECT_EQ(test.client().post("/tokenize", R"({"content":"hi"})").status, 200);
  for (int i = 0; i < 8; i++) (*test.engine.held_switches.pop())();
  for (auto& answer : switches) EXPECT_EQ(answer.get().status, 200);
}

// Any page can make a browser on the same machine send these.
TEST(SchedulerLoop, IsNotForPagesOfOthers) {
  TestServer test;
  const std::string body = R"({"loop":"normal"})";
  const std::string origin = "Origin: http://page.example\r\n";
  EXPECT_EQ(test.client().post("/scheduler/loop", body, origin).status, 403);
  const auto ask = [](const std::string& path, const std::string& host, const std::string& page) {
    FakeEngine engine;
    Router router{ServerConfig{}};
    router.attach(engine);
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.host = host;
    request.origin = page;
    request.from_this_machine = true;
    Reply reply = router.dispatch(std::move(request));
    const auto* response = std::get_if<HttpResponse>(&reply);
    return response ? response->status : 200;
  };
  EXPECT_EQ(ask("/trace", "127.0.0.1:8080", "http://page.example"), 403);
  EXPECT_EQ(ask("/trace", "page.example:8080", "http://page.example:8080"),
            403);  // a name that was pointed here
  EXPECT_EQ(ask("/trace", "page.example:8080", ""), 403);
  EXPECT_EQ(ask("/scheduler/loop", "page.example:8080", ""), 403);
  EXPECT_EQ(ask("/scheduler/loop", "localhost", ""), 200);
  for (const char* host : {"127.0.0.1:8080", "localhost", "localhost:80", "[::1]:8080", "10.1.2.3", ""})
    EXPECT_EQ(ask("/trace", host, ""), 200) << host;
  EXPECT_EQ(ask("/trace", "127.0.0.1:8080", "http://127.0.0.1:8080"), 200);
  EXPECT_EQ(ask("/trace", "127.0.0.1:8080", "http://127.0.0.1:9090"), 403);
  EXPECT_EQ(test.engine.event_loop(), EventLoop::kOverlap);
}

}  // namespace
}  // namespace gapless::testing
