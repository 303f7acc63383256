// POST /scheduler/loop: switches the event loop of a running server.
#include <gtest/gtest.h>

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

// Any page can make a browser on the same machine send this.
TEST(SchedulerLoop, IsNotForPagesOfOthers) {
  TestServer test;
  HttpClient client = test.client();
  const std::string body = R"({"loop":"normal"})";
  EXPECT_EQ(client.post("/scheduler/loop", body, "Origin: http://page.example\r\n").status, 403);
  EXPECT_EQ(test.engine.event_loop(), EventLoop::kOverlap);
}

}  // namespace
}  // namespace gapless::testing
