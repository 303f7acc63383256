// Requests and responses as the handlers see them: plain data, nothing of the socket library.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace gapless {

struct HttpRequest {
  std::string method;  // "GET"; HEAD stays "HEAD"
  std::string path;    // without the query, percent-decoded: any bytes
  std::string query;
  std::string id;                      // X-Request-Id of the client, made safe, or a generated one
  std::string unique;                  // always generated: no other request has it
  std::string authorization, api_key;  // Authorization, and X-Api-Key as Anthropic's clients send it
  std::string host, origin, content_encoding, accept, if_none_match;
  std::string fetch_site;                           // Sec-Fetch-Site: how far from us the page is that asks
  std::string preflight_method, preflight_headers;  // Access-Control-Request-*
  bool from_this_machine = false;  // a unix socket or a loopback address, which may be a proxy's
  std::string body;
  std::chrono::steady_clock::time_point received;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string message;  // of an error: what the body says of it
  std::string reason;   // of an error, for the log alone
};

// A response that is still being made. All calls on the http thread.
class PendingResponse {
 public:
  struct Part {
    std::optional<HttpResponse> head;  // once, in the first part that is not empty
    std::string data;                  // more of the body, of a response whose head came with `end` unset
    bool end = false;                  // nothing follows
    std::string reason;                // where an error ends a stream, for the log alone
    bool empty() const { return !head && data.empty() && !end; }
  };

  virtual ~PendingResponse() = default;
  // Once, first. `wake` may be called from any thread, also after the connection has gone: take() has
  // something new.
  virtual void start(std::function<void()> wake) = 0;
  // Everything that can be sent now.
  virtual Part take() = 0;
  // Nothing was sent for a while: what keeps the connection alive, if anything does.
  virtual Part keepalive() { return {}; }
  // The client has gone (kCancelled) or the server stops (kUnavailable). take() then says how the response
  // ends.
  virtual void cancel(const Status& why) = 0;
  // The reader lags so far behind that it must be dropped.
  virtual bool backlog_exceeded() const { return false; }
  // For the request's line in the log: "prompt=12 generated=30 ...".
  virtual std::string log_fields() const { return {}; }
};

using Reply = std::variant<HttpResponse, std::shared_ptr<PendingResponse>>;

}  // namespace gapless
