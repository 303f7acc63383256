// The web page: who is given it, with which headers, and that nothing else is.
#include "server/page.h"

#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace gapless::testing {
namespace {

const std::string kBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

ClientResponse head_of(const TestServer& test, const std::string& path, const std::string& headers) {
  HttpClient client = test.client();
  client.send("HEAD " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  return client.read_response(true);
}

TEST(Page, ABrowserIsShownItAndAProgramTheList) {
  ServerConfig config;
  config.cors_origins.clear();  // they would vary by Origin as well
  TestServer test({}, config);
  const ClientResponse page = test.client().get("/", kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("vary"), "Accept");
  EXPECT_TRUE(page.body.starts_with("<!doctype html>")) << page.body.substr(0, 80);
  for (const char* headers : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    const ClientResponse list = test.client().get("/", headers);
    EXPECT_EQ(list.headers.at("content-type"), "application/json") << headers;
    EXPECT_TRUE(list.json().contains("endpoints")) << headers;
  }
}

TEST(Page, NeedsNoKeyWhileTheListDoes) {
  ServerConfig config;
  config.api_keys = {"k"};
  TestServer test({}, config);
  EXPECT_EQ(test.client().get("/", kBrowser).status, 200);
  EXPECT_EQ(test.client().get("/ui/app.js").status, 200);
  EXPECT_EQ(test.client().get("/").status, 401);
  EXPECT_EQ(test.client().get("/", "Authorization: Bearer k\r\n").status, 200);
  EXPECT_EQ(test.client().get("/v1/models", kBrowser).status, 401);
}

TEST(Page, EveryFileHasItsTypeAndThePolicy) {
  TestServer test;
  const std::map<std::string, std::string> types = {
      {"js", "text/javascript; charset=utf-8"}, {"css", "text/css; charset=utf-8"}, {"svg", "image/svg+xml"}};
  std::set<std::string> seen;
  for (const PageFile& file : page_files()) {
    const std::string name(file.name);
    if (name == "index.html") continue;
    const ClientResponse answer = test.client().get("/ui/" + name);
    const std::string kind = name.substr(name.rfind('.') + 1);
    seen.insert(kind);
    EXPECT_EQ(answer.status, 200) << name;
    EXPECT_EQ(answer.body, file.text) << name;
    EXPECT_EQ(answer.headers.at("content-type"), types.at(kind)) << name;
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff") << name;
    EXPECT_EQ(answer.headers.at("cache-control"), "no-cache") << name;
    EXPECT_TRUE(answer.headers.at("content-security-policy").starts_with("default-src 'none'; ")) << name;
  }
  EXPECT_EQ(seen.size(), types.size());
}

TEST(Page, PolicyAllowsThisServerAlone) {
  TestServer test;
  EXPECT_EQ(
      test.client().get("/", kBrowser).headers.at("content-security-policy"),
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: "
      "blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
}

TEST(Page, NothingElseIsServed) {
  TestServer test;
  for (const char* path : {"/ui/index.html", "/ui/", "/ui", "/ui/none.js", "/ui/../page.h", "/ui/..%2Fpage.h",
                           "/ui/%2Fetc%2Fpasswd", "/ui/app.js/", "/ui/app.js%00", "/index.html", "/app.js"}) {
    const ClientResponse answer = test.client().get(path, kBrowser);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.error("code"), "not_found") << path;
  }
  EXPECT_EQ(test.client().post("/ui/app.js", "{}").status, 405);
  EXPECT_EQ(test.client().post("/", "{}", kBrowser).status, 405);
}

TEST(Page, WhatABrowserHasIsNotSentAgain) {
  TestServer test;
  for (const std::string path : {"/", "/ui/app.js"}) {
    HttpClient client =
        test.client();  // kept: a 304 has no body, and the next answer follows right behind it
    const ClientResponse first = client.get(path, kBrowser);
    const std::string etag = first.headers.at("etag");
    const ClientResponse again = client.get(path, kBrowser + "If-None-Match: \"other\", " + etag + "\r\n");
    EXPECT_EQ(again.status, 304) << path;
    EXPECT_EQ(again.body, "");
    EXPECT_EQ(again.headers.at("etag"), etag);
    EXPECT_FALSE(again.headers.contains("content-length"));
    EXPECT_EQ(client.get(path, kBrowser + "If-None-Match: \"other\"\r\n").body, first.body);
    const ClientResponse head = head_of(test, path, kBrowser);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("content-length"), std::to_string(first.body.size()));
    EXPECT_EQ(head.headers.at("etag"), etag);
  }
}

TEST(Page, IsThereWhileTheModelLoads) {
  ServerConfig config;
  config.port = 0;
  const auto server = HttpServer::create(config);
  ASSERT_TRUE(server.is_ok());
  HttpClient client((*server)->port());
  EXPECT_EQ(client.get("/", kBrowser).status, 200);
  EXPECT_EQ(client.get("/ui/app.js").status, 200);
}

}  // namespace
}  // namespace gapless::testing
