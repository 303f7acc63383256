// A blocking HTTP client on raw sockets, for tests that care about every byte and every close.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gapless::testing {

struct ClientResponse {
  int status = 0;                              // 0: the connection ended before a response
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // its end was seen
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // error.message, .param, .code of an error response.
  std::string error(const std::string& member) const;
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port, const std::string& address = "127.0.0.1");
  static HttpClient unix_socket(const std::string& path);
  ~HttpClient() { close(); }
  HttpClient(HttpClient&& other) noexcept;
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  bool send(std::string_view bytes);
  ClientResponse read_response(bool head = false);
  ClientResponse get(const std::string& path, const std::string& headers = "");
  ClientResponse post(const std::string& path, const std::string& body, const std::string& headers = "");
  // Reads until `text` has come; what was read so far. Empty: the connection ended first.
  std::string read_until(std::string_view text);
  // True when the server has closed the connection (waits for it up to `seconds`).
  bool closed_within(double seconds);
  void close();
  void end_sending();
  void reset();  // closes with RST
  void shrink_receive_buffer(int bytes);

 private:
  HttpClient() = default;
  bool fill();

  int fd_ = -1;
  std::string buffer_;
};

std::string post_text(const std::string& path, const std::string& body, const std::string& headers = "");
// The payloads of the `data:` lines; comments left out.
std::vector<std::string> sse_data(const std::string& body);

}  // namespace gapless::testing
