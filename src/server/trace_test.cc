// GET /trace: what it answers, to whom, and what the http thread records.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

#include "base/trace_names.h"
#include "server/listen_socket.h"
#include "server/router.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

std::vector<nlohmann::json> spans_named(const nlohmann::json& trace, const std::string& name) {
  std::vector<nlohmann::json> spans;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("name") == name) spans.push_back(event);
  return spans;
}

TEST(Trace, AnswersTheRingsOfTheEngine) {
  TestServer test;
  const double now = steady_seconds();
  TraceRing& device = test.engine.tracer().ring(trace::kDevice);
  device.add(trace::kDecode, now - 100, now - 99, 1, 32, 32);
  device.add(trace::kDecode, now - 0.01, now, 2, 31, 31);
  const ClientResponse all = test.client().get("/trace");
  ASSERT_EQ(all.status, 200) << all.body;
  EXPECT_EQ(all.headers.at("content-type"), "application/json");
  const auto spans = spans_named(all.json(), "decode");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].at("args").at("rows"), 32);

  const auto last = spans_named(test.client().get("/trace?seconds=60").json(), "decode");
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].at("args").at("batch"), 2);
}

TEST(Trace, TheQueryIsChecked) {
  TestServer test;
  for (const char* query : {"seconds=0", "seconds=-1", "seconds=", "seconds=2x", "secs=3", "seconds=nan"}) {
    const ClientResponse response = test.client().get(std::string("/trace?") + query);
    EXPECT_EQ(response.status, 400) << query;
    EXPECT_EQ(response.error("param"), "seconds");
    EXPECT_NE(response.error("message").find(query), std::string::npos) << response.body;
  }
  EXPECT_EQ(test.client().post("/trace", "").status, 405);
}

TEST(Trace, TheHttpThreadRecordsRequestsAndBursts) {
  TestServer test;
  const std::string body = R"({"prompt":"hi","max_tokens":4,"stream":true})";
  EXPECT_EQ(test.client().post("/v1/completions", body).status, 200);
  nlohmann::json trace;
  ASSERT_TRUE(eventually([&] {
    trace = test.client().get("/trace").json();
    return !spans_named(trace, "burst").empty();
  }));
  bool seen = false;
  for (const auto& span : spans_named(trace, "request"))
    seen = seen || span.at("args").at("bytes") == body.size();
  EXPECT_TRUE(seen) << trace.dump();
  for (const auto& span : spans_named(trace, "burst")) EXPECT_GT(span.at("args").at("handlers"), 0);
}

HttpResponse ask_router(const std::vector<std::string>& keys, bool from_this_machine,
                        const std::string& authorization) {
  FakeEngine engine;
  ServerConfig config;
  config.api_keys = keys;
  Router router(config);
  router.attach(engine);
  HttpRequest request;
  request.method = "GET";
  request.path = "/trace";
  request.authorization = authorization;
  request.from_this_machine = from_this_machine;
  Reply reply = router.dispatch(std::move(request));
  if (auto* response = std::get_if<HttpResponse>(&reply)) return *response;
  return {};
}

TEST(Trace, IsForThisMachineOrForAKey) {
  EXPECT_EQ(ask_router({}, true, "").status, 200);
  EXPECT_EQ(ask_router({}, false, "").status, 403);
  EXPECT_NE(ask_router({}, false, "").body.find("--api-key"), std::string::npos);
  EXPECT_EQ(ask_router({}, false, "Bearer k").status, 403);
  EXPECT_EQ(ask_router({"k"}, false, "Bearer k").status, 200);
  EXPECT_EQ(ask_router({"k"}, false, "").status, 401);
  EXPECT_EQ(ask_router({"k"}, true, "").status, 401);  // a proxy makes everybody local
}

sockaddr_storage address_of(int family, const char* text) {
  sockaddr_storage address{};
  address.ss_family = sa_family_t(family);
  void* ip = family == AF_INET ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(address).sin_addr)
                               : &reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
  EXPECT_EQ(inet_pton(family, text, ip), 1) << text;
  return address;
}

TEST(Trace, LoopbackAddressesAreThisMachine) {
  for (const char* text : {"127.0.0.1", "127.8.9.10"})
    EXPECT_TRUE(is_this_machine(address_of(AF_INET, text)));
  for (const char* text : {"10.0.0.1", "128.0.0.1", "0.0.0.0"})
    EXPECT_FALSE(is_this_machine(address_of(AF_INET, text))) << text;
  for (const char* text : {"::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_this_machine(address_of(AF_INET6, text))) << text;
  for (const char* text : {"::2", "::ffff:10.0.0.1", "fe80::1"})
    EXPECT_FALSE(is_this_machine(address_of(AF_INET6, text))) << text;
  sockaddr_storage unix_socket{};
  unix_socket.ss_family = AF_UNIX;
  EXPECT_TRUE(is_this_machine(unix_socket));
  EXPECT_FALSE(is_this_machine({}));
}

TEST(Profile, IsShownInTwoFormsAndBeginsAnew) {
  TestServer test;
  const ClientResponse json = test.client().get("/profile");
  EXPECT_EQ(json.status, 200);
  EXPECT_TRUE(json.json().contains("steps"));
  const ClientResponse text = test.client().get("/profile?format=text");
  EXPECT_EQ(text.body, "a table");
  EXPECT_EQ(text.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(test.client().get("/profile?format=xml").error("param"), "format");
  EXPECT_EQ(test.client().post("/profile", "").status, 200);
  EXPECT_EQ(test.engine.profile_resets, 1);
  EXPECT_EQ(test.client().post("/profile", "", "Origin: http://page.example\r\n").status, 403);
}

TEST(Profile, SaysHowToSwitchItOn) {
  TestServer test;
  test.engine.profiles = Status::invalid("start it with --profile");
  for (const ClientResponse& refused : {test.client().get("/profile"), test.client().post("/profile", "")}) {
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.error("message"), "start it with --profile");
  }
  EXPECT_EQ(test.engine.profile_resets, 0);
}

}  // namespace
}  // namespace gapless::testing
