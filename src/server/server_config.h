// How the HTTP side behaves. Everything here is a flag of `gapless serve`; the defaults are the flags'
// defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gapless {

struct ServerConfig {
  // An IPv4 or IPv6 address ("::" listens on both), a host name (all its addresses), or "unix:/path".
  std::string host = "127.0.0.1";
  uint16_t port = 8080;   // 0: the system picks one
  std::string port_file;  // the port is written here once the socket listens

  std::vector<std::string> api_keys;              // none: no key is asked for
  std::vector<std::string> cors_origins = {"*"};  // "*": any origin. Empty: no CORS headers at all
  bool strict_model = false;                      // a request that names another model is a 404

  int64_t max_body_bytes = 32 << 20;
  int32_t max_header_bytes = 32 << 10;
  // 0: as many as the descriptor limit allows. Beyond it a connection is answered 503 and closed.
  int32_t max_connections = 0;
  int32_t max_completion_logprobs = 5;  // `logprobs` of /v1/completions; at most 20

  std::chrono::milliseconds header_timeout{
      30'000};  // from the first byte of a request to the end of its headers
  std::chrono::milliseconds body_timeout{30'000};   // without a byte of the body
  std::chrono::milliseconds idle_timeout{600'000};  // a kept-alive connection without a request
  std::chrono::milliseconds write_timeout{30'000};  // a reader that takes nothing for this long is dropped
  std::chrono::milliseconds sse_keepalive{10'000};  // a stream with nothing to say sends a comment this often
  std::chrono::milliseconds shutdown_timeout{30'000};
  // What may wait for one streaming reader. A reader that lags further behind is dropped.
  int64_t max_stream_backlog_bytes = 16 << 20;
};

}  // namespace gapless
