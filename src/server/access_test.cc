// Which pages may call what is for operators: our own and those of an origin that was named, with a key or
// without.
#include "server/access.h"

#include <gtest/gtest.h>

#include "server/route.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

HttpRequest page(const std::string& origin, const std::string& host = "127.0.0.1:8080") {
  HttpRequest request;
  request.origin = origin;
  request.host = host;
  request.from_this_machine = true;
  return request;
}

TEST(Access, OperatorsPathsAreForOwnAndNamedPages) {
  for (const std::vector<std::string>& keys : {std::vector<std::string>{}, {"k"}}) {
    SCOPED_TRACE(keys.empty() ? "no key" : "a key");
    const AccessRules any(keys, {"*"}), named(keys, {"http://good.example"}), none(keys, {});
    for (const AccessRules* rules : {&any, &named, &none}) {
      const auto may = [&](const std::string& origin) {
        return rules->authorize_operator(page(origin)).is_ok();
      };
      EXPECT_TRUE(may("")) << "not a page";
      EXPECT_TRUE(may("http://127.0.0.1:8080"));
      EXPECT_TRUE(may("https://127.0.0.1:8080"));
      for (const char* other : {"http://127.0.0.1:8081", "http://127.0.0.1", "http://localhost:8080", "null",
                                "*", "http://page.example", "http://127.0.0.1:8080.page.example",
                                "ftp://127.0.0.1:8080", "127.0.0.1:8080"})
        EXPECT_FALSE(may(other)) << other;
      EXPECT_EQ(may("http://good.example"), rules == &named);
    }
  }
}

TEST(Access, OperatorsPathsAreNotForImagesAndLinksOfOtherPages) {
  const AccessRules rules({}, {"*"});
  for (const auto& [site, may] : {std::pair("none", true),
                                  {"same-origin", true},
                                  {"", true},
                                  {"same-site", false},
                                  {"cross-site", false}}) {
    HttpRequest request = page("");
    request.fetch_site = site;
    EXPECT_EQ(rules.authorize_operator(request).is_ok(), may) << site;
  }
  TestServer test;
  EXPECT_EQ(test.client().get("/flush_cache", "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(test.engine.flushes, 0);
}

TEST(Access, ANameThatWasPointedHereNeedsAKey) {
  const HttpRequest rebound = page("http://page.example:8080", "page.example:8080");
  EXPECT_FALSE(AccessRules({}, {"*"}).authorize_operator(rebound).is_ok());
  EXPECT_TRUE(AccessRules({"k"}, {"*"}).authorize_operator(rebound).is_ok());
  EXPECT_FALSE(AccessRules({}, {"http://good.example"})
                   .authorize_operator(page("http://good.example", "page.example"))
                   .is_ok());
}

TEST(Access, EveryPathForOperatorsRefusesOtherPages) {
  ServerConfig config;
  config.api_keys = {"k"};
  TestServer test({}, config);
  const std::string headers = "Authorization: Bearer k\r\nOrigin: http://page.example\r\n";
  for (const Route& route : routes()) {
    if (route.who != Who::kOperators) continue;
    const std::string path(route.path);
    const ClientResponse answer =
        route.method == "GET" ? test.client().get(path, headers) : test.client().post(path, "{}", headers);
    EXPECT_EQ(answer.status, 403) << route.method << " " << path;
    EXPECT_NE(answer.error("message").find("--cors-origin"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(test.engine.flushes, 0);
  EXPECT_EQ(test.client().get("/v1/models", headers).status, 200)
      << "clients' paths are as open as CORS says";
}

}  // namespace
}  // namespace gapless::testing
