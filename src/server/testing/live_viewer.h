// Watches GET /live over a raw socket.
#pragma once

#include <string>
#include <utility>

#include "server/testing/http_client.h"

namespace gapless::testing {

class LiveViewer {
 public:
  explicit LiveViewer(uint16_t port, const std::string& headers = "") : client_(port) {
    client_.send("GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n");
  }

  // The next event: its name and its object. An empty name: the stream has ended.
  std::pair<std::string, nlohmann::json> next() {
    const std::string text = client_.read_until("\n\n");
    const size_t name = text.find("event: "), data = text.find("\ndata: ");
    if (name == std::string::npos || data == std::string::npos) return {};
    head_ += text.substr(0, name);
    return {text.substr(name + 7, data - name - 7), nlohmann::json::parse(text.substr(data + 7))};
  }
  // The next event of that name; null when the stream ends before.
  nlohmann::json next(const std::string& name) {
    for (auto event = next(); !event.first.empty(); event = next())
      if (event.first == name) return event.second;
    return nullptr;
  }
  // What came before the events: the response's head.
  const std::string& head() const { return head_; }
  HttpClient& client() { return client_; }

 private:
  HttpClient client_;
  std::string head_;
};

}  // namespace gapless::testing
