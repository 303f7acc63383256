// POST /scheduler/loop: switches the event loop of a running server.
#include <gtest/gtest.h>

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
  EXPECT_EQ(test.client().get("/scheduler/loop").status, 405);
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
  for (const char* host : {"127.0.0.1:8080", "localhost", "localhost:80", "[::1]:8080", "10.1.2.3", ""})
    EXPECT_EQ(ask("/trace", host, ""), 200) << host;
  EXPECT_EQ(ask("/trace", "127.0.0.1:8080", "http://127.0.0.1:8080"), 200);
  EXPECT_EQ(test.engine.event_loop(), EventLoop::kOverlap);
}

}  // namespace
}  // namespace gapless::testing
