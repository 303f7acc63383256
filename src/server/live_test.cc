// GET /live: what a viewer is sent, who may watch, and when it ends.
#include <gtest/gtest.h>

#include <dirent.h>

#include <fstream>

#include "base/trace_names.h"
#include "server/testing/live_viewer.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

using nlohmann::json;

bool live_thread_exists() {
  DIR* tasks = opendir("/proc/self/task");
  bool found = false;
  while (const dirent* task = readdir(tasks)) {
    std::ifstream file(std::string("/proc/self/task/") + task->d_name + "/comm");
    std::string name;
    found = found || (std::getline(file, name) && name == "live");
  }
  closedir(tasks);
  return found;
}

SchedulerSnapshot two_requests() {
  SchedulerSnapshot s;
  s.at = steady_seconds();
  s.stats.running = 1;
  s.stats.queued = 1;
  s.stats.generation_tokens = 77;
  s.requests = {{.id = 5,
                 .rid = "cmpl-a",
                 .choice = 1,
                 .phase = RequestPhase::kDecode,
                 .prompt = 12,
                 .cached = 8,
                 .computed = 14,
                 .output = 3,
                 .max_output = 64,
                 .age_seconds = 1.5,
                 .queue_seconds = 0.25},
                {.id = 6, .rid = "say \"x\"\n" + std::string(200, 'y')}};
  s.pages = {.page_size = 16, .free = 3, .tree = 4, .in_use = 2, .leased = 1, .evictable = 2};
  s.cache_nodes = 9;
  s.prefixes = {{.tokens = 512, .branches = 3, .users = 2}};
  return s;
}

TEST(Live, HelloSaysWhatIsWatched) {
  TestServer test;
  LiveViewer viewer(test.server->port());
  const auto [name, hello] = viewer.next();
  EXPECT_EQ(name, "hello");
  EXPECT_NE(viewer.head().find("200 OK"), std::string::npos);
  EXPECT_NE(viewer.head().find("text/event-stream"), std::string::npos);
  EXPECT_EQ(hello.at("model"), "fake-model");
  EXPECT_EQ(hello.at("device"), "none");
  EXPECT_EQ(hello.at("loop"), "overlap");
  EXPECT_EQ(hello.at("page_size"), 16);
  EXPECT_EQ(hello.at("max_running"), 64);
  EXPECT_EQ(hello.at("context_length"), 4096);
  EXPECT_FALSE(hello.at("version").get<std::string>().empty());
  EXPECT_EQ(hello.at("rings"), json::parse(R"(["http","scheduler","forward","device","detokenizer"])"));
  EXPECT_TRUE(hello.at("names").is_array());
}

TEST(Live, FramesCarryWhatWasRecordedSinceTheLast) {
  TestServer test;
  LiveViewer viewer(test.server->port());
  json names = viewer.next("hello").at("names");
  const double begin = steady_seconds();
  TraceRing& device = test.engine.tracer().ring(trace::kDevice);
  for (int i = 0; i < 4; i++)
    device.add(trace::kDecode, begin + 0.001 * i, begin + 0.001 * i + 0.0009, i, 32, 32);
  json frame;
  do {
    frame = viewer.next("frame");
    if (frame.contains("names")) names.insert(names.end(), frame["names"].begin(), frame["names"].end());
  } while (frame.at("steps").at("n") == 0);
  EXPECT_LE(frame.at("from"), frame.at("to"));
  EXPECT_EQ(frame.at("left_out"), 0);
  EXPECT_EQ(frame.at("loop"), "overlap");
  std::vector<json> steps;
  for (const json& span : frame.at("spans"))
    if (span.at(0) == 3) steps.push_back(span);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(names.at(steps[0].at(1).get<size_t>()),
            json::parse(R"({"text":"decode","args":["batch","rows","tokens"]})"));
  EXPECT_EQ(steps[2].at(3), 900);  // microseconds
  EXPECT_EQ(steps[2].at(4), 2);
  const double at = frame.at("from").get<double>() + steps[1].at(2).get<double>() / 1e6;
  EXPECT_NEAR(at, begin + 0.001 - test.engine.tracer().start(), 2e-6);
  const json& report = frame.at("steps");
  EXPECT_EQ(report.at("rows"), 128);
  EXPECT_EQ(report.at("tokens"), 128);
  EXPECT_EQ(report.at("gap_us").at("n"), 3);
  EXPECT_NEAR(report.at("gap_us").at("max").get<double>(), 100, 0.5);
  ASSERT_EQ(report.at("gaps").size(), 3u);
  EXPECT_NEAR(report.at("gaps").at(0).at(0).get<double>(), begin + 0.0009 - test.engine.tracer().start(),
              2e-6);
  EXPECT_NEAR(report.at("busy").get<double>(), 3.6 / 3.9, 0.001);
}

TEST(Live, StatesAreWhatTheSchedulerAnswers) {
  TestServer test;
  test.engine.snapshot = two_requests();
  LiveViewer viewer(test.server->port());
  const json state = viewer.next("state");
  EXPECT_EQ(state.at("running"), 1);
  EXPECT_EQ(state.at("queued"), 1);
  EXPECT_EQ(state.at("tokens").at("generated"), 77);
  EXPECT_EQ(state.at("kv"),
            json::parse(R"({"page_size":16,"free":3,"tree":4,"evictable":2,"in_use":2,"leased":1})"));
  EXPECT_EQ(state.at("cache").at("nodes"), 9);
  EXPECT_EQ(state.at("cache").at("prefixes"), json::parse(R"([{"tokens":512,"branches":3,"users":2}])"));
  ASSERT_EQ(state.at("requests").size(), 2u);
  EXPECT_EQ(
      state.at("requests").at(0),
      json::parse(R"({"id":5,"rid":"cmpl-a","choice":1,"phase":"decode","prompt":12,"cached":8,"computed":14,
                            "output":3,"max":64,"age_s":1.5,"queue_s":0.25})"));
  EXPECT_LT(state.at("requests").at(1).at("rid").get<std::string>().size(), 100u) << "a long name is cut";
  EXPECT_EQ(state.at("requests_left_out"), 0);
}

TEST(Live, TheNameOfARequestReachesTheEngine) {
  TestServer test;
  const ClientResponse named =
      test.client().post("/generate", R"({"text":"a","rid":"mine","sampling_params":{"max_new_tokens":1}})");
  EXPECT_EQ(named.status, 200);
  const ClientResponse plain = test.client().post("/v1/completions", R"({"prompt":"a","max_tokens":1})");
  ASSERT_EQ(test.engine.submitted().size(), 2u);
  EXPECT_EQ(test.engine.submitted()[0].rid, "mine");
  EXPECT_EQ(test.engine.submitted()[1].rid, plain.json().at("id"));
}

TEST(Live, TheThreadIsThereOnlyWhileSomebodyWatches) {
  TestServer test;
  EXPECT_FALSE(live_thread_exists());
  for (int round = 0; round < 3; round++) {
    LiveViewer one(test.server->port()), two(test.server->port());
    ASSERT_FALSE(one.next("hello").is_null());
    ASSERT_FALSE(two.next("hello").is_null());
    EXPECT_TRUE(live_thread_exists());
    one.client().close();
    EXPECT_FALSE(two.next("frame").is_null());
    two.client().close();
    EXPECT_TRUE(eventually([] { return !live_thread_exists(); }));
  }
  const int asked = test.engine.snapshots;
  EXPECT_GE(asked, 3);
  test.client().get("/health");
  EXPECT_EQ(test.engine.snapshots, asked);
}

TEST(Live, EndsWhenTheServerDrains) {
  TestServer test;
  LiveViewer viewer(test.server->port());
  ASSERT_FALSE(viewer.next("hello").is_null());
  test.server->shutdown();
  while (!viewer.next().first.empty()) {
  }
  EXPECT_TRUE(viewer.client().closed_within(10));
  test.server->wait();
}

TEST(Live, TooManyAreRefusedAndALeaverMakesRoom) {
  TestServer test;
  std::vector<LiveViewer> viewers;
  for (int i = 0; i < 16; i++) viewers.emplace_back(test.server->port());
  for (LiveViewer& viewer : viewers) ASSERT_FALSE(viewer.next("hello").is_null());
  const ClientResponse refused = test.client().get("/live");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.error("message").find("16"), std::string::npos) << refused.body;
  viewers.pop_back();
  EXPECT_TRUE(eventually([&] { return !LiveViewer(test.server->port()).next("hello").is_null(); }));
}

TEST(Live, HeadHasNoBody) {
  TestServer test;
  HttpClient client = test.client();
  client.send("HEAD /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(client.read_response(true).headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(client.get("/health").body, R"({"status":"ok"})");
  EXPECT_FALSE(live_thread_exists());
}

// A viewer that does not read costs nobody anything: what it misses is dropped.
TEST(Live, AViewerThatDoesNotReadHoldsUpNobody) {
  TestServer test;
  LiveViewer asleep(test.server->port()), awake(test.server->port());
  TraceRing& http = test.engine.tracer().ring(trace::kForward);
  for (int i = 0; i < 5; i++) {
    for (int j = 0; j < 2000; j++) http.add(trace::kPlan, steady_seconds(), steady_seconds(), j, 1, 1);
    ASSERT_FALSE(awake.next("frame").is_null());
  }
  EXPECT_EQ(asleep.next().first, "hello");
}

}  // namespace
}  // namespace gapless::testing
