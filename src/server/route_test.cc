// The table of what can be called: that it agrees with docs/api.md, with `GET /`, and with itself.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "server/route.h"
#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

std::string name_of(const Route& route) {
  return fmt::format("{} {}", route.method, route.path);
}

// The rows of a markdown file that name endpoints, by each name: "GET /health" -> the row.
std::map<std::string, std::string> documented_endpoints() {
  std::ifstream file(GAPLESS_DOCS "/api.md");
  EXPECT_TRUE(file.is_open());
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `GET /") && !line.starts_with("| `POST /")) continue;
    const std::string names = line.substr(0, line.find(" | ", 2));
    for (size_t at = names.find('`'); at != std::string::npos;) {
      const size_t end = names.find('`', at + 1);
      const std::string name = names.substr(at + 1, end - at - 1);
      rows[name.substr(0, name.find('?'))] = line;  // a query is an option of the same endpoint
      at = names.find('`', end + 1);
    }
  }
  return rows;
}

TEST(Routes, DocsNameExactlyWhatIsServedAndWhatIsForOperators) {
  const std::map<std::string, std::string> documented = documented_endpoints();
  std::set<std::string> served;
  for (const Route& route : routes()) {
    served.insert(name_of(route));
    const auto it = documented.find(name_of(route));
    ASSERT_NE(it, documented.end()) << "docs/api.md lacks a row that begins: | `" << name_of(route) << "`";
    const bool says_operators = it->second.find("For operators") != std::string::npos;
    EXPECT_EQ(says_operators, route.who == Who::kOperators) << it->second;
  }
  for (const auto& [name, row] : documented) EXPECT_TRUE(served.contains(name)) << name << " is not served";
}

TEST(Routes, EachIsThereOnceAndFound) {
  std::set<std::string> seen;
  for (const Route& route : routes()) {
    EXPECT_TRUE(route.method == "GET" || route.method == "POST") << name_of(route);
    EXPECT_TRUE(seen.insert(name_of(route)).second) << name_of(route) << " is there twice";
    EXPECT_EQ(served_path(route.path), route.path);
    EXPECT_EQ(find_route(route.method, route.path), &route);
    EXPECT_NE(allowed_methods(route.path).find(route.method), std::string::npos);
  }
  EXPECT_EQ(served_path("/v1/models/a/b"), "/v1/models/{id}");
  EXPECT_EQ(served_path("/v1/models/"), "");
  EXPECT_EQ(served_path(""), "");
  EXPECT_EQ(find_route("HEAD", "/health"), find_route("GET", "/health"));
  EXPECT_EQ(find_route("POST", "/health"), nullptr);
  EXPECT_EQ(find_route("GET", ""), nullptr);
}

TEST(Routes, RootListsThemAndMetricsNameThem) {
  TestServer test;
  const ClientResponse root = test.client().get("/");
  std::vector<std::string> listed = root.json().at("endpoints"), all;
  for (const Route& route : routes()) all.push_back(name_of(route));
  EXPECT_EQ(listed, all);
  EXPECT_EQ(test.client().get("/v1/models/no-such").status, 404);
  EXPECT_EQ(test.client().get("/no/such").status, 404);
  const std::string metrics = test.client().get("/metrics").body;
  for (const char* endpoint : {"/v1/models/{id}", "other"}) {
    const std::string counted =
        fmt::format("gapless_http_requests_total{{endpoint=\"{}\",status=\"404\"}} 1\n", endpoint);
    EXPECT_NE(metrics.find(counted), std::string::npos) << counted;
  }
}

TEST(Routes, KeysGuardAllButWhatIsForAnyone) {
  ServerConfig config;
  config.api_keys = {"k"};
  TestServer test({}, config);
  for (const Route& route : routes()) {
    const std::string path(route.path);
    const ClientResponse answer =
        route.method == "GET" ? test.client().get(path) : test.client().post(path, "{}");
    EXPECT_EQ(answer.status != 401, route.who == Who::kAnyone) << name_of(route) << " " << answer.status;
  }
}

}  // namespace
}  // namespace gapless::testing
