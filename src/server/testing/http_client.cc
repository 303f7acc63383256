#include "server/testing/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gapless::testing {

namespace {

constexpr int kTimeoutSeconds = 30;

void set_timeouts(int fd) {
  const timeval limit{kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void parse_head(const std::string& head, ClientResponse& response) {
  response.status = head.size() > 12 ? std::atoi(head.c_str() + 9) : 0;
  size_t line = head.find("\r\n") + 2;
  while (line < head.size()) {
    const size_t end = std::min(head.find("\r\n", line), head.size());
    const size_t colon = head.find(": ", line);
    if (colon < end)
      response.headers[lower(head.substr(line, colon - line))] = head.substr(colon + 2, end - colon - 2);
    line = end + 2;
  }
}

}  // namespace

std::string ClientResponse::error(const std::string& member) const {
  const nlohmann::json parsed = json();
  if (!parsed.is_object() || !parsed.contains("error") || !parsed["error"].contains(member)) return "(none)";
  const nlohmann::json& value = parsed["error"][member];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

HttpClient::HttpClient(uint16_t port, const std::string& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  fd_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  set_timeouts(fd_);
  if (::connect(fd_, found->ai_addr, found->ai_addrlen) != 0) close();
  freeaddrinfo(found);
}

HttpClient HttpClient::unix_socket(const std::string& path) {
  HttpClient client;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  client.fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  set_timeouts(client.fd_);
  if (::connect(client.fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) client.close();
  return client;
}

HttpClient::HttpClient(HttpClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(size_t(n));
  }
  return true;
}

bool HttpClient::fill() {
  char block[16384];
  const ssize_t n = ::recv(fd_, block, sizeof block, 0);
  if (n <= 0) return false;
  buffer_.append(block, size_t(n));
  return true;
}

std::string HttpClient::read_until(std::string_view text) {
  while (true) {
    if (const size_t at = buffer_.find(text); at != std::string::npos) {
      std::string out = buffer_.substr(0, at + text.size());
      buffer_.erase(0, out.size());
      return out;
    }
    if (!fill()) return {};
  }
}

ClientResponse HttpClient::read_response(bool head) {
  ClientResponse response;
  const std::string head_text = read_until("\r\n\r\n");
  if (head_text.empty()) return response;
  parse_head(head_text, response);
  if (head || response.status == 204 || response.status == 304 || response.status / 100 == 1) {
    response.complete = true;
  } else if (response.headers.contains("transfer-encoding")) {
    while (true) {
      const std::string size_line = read_until("\r\n");
      if (size_line.empty()) return response;
      const size_t size = std::stoul(size_line, nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!fill()) return response;
      }
      response.body += buffer_.substr(0, size);
      buffer_.erase(0, size + 2);
      if (size == 0) break;
    }
    response.complete = true;
  } else if (response.headers.contains("content-length")) {
    const size_t size = std::stoul(response.headers["content-length"]);
    while (buffer_.size() < size) {
      if (!fill()) return response;
    }
    response.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    response.complete = true;
  } else {
    while (fill()) {
    }
    response.body = std::exchange(buffer_, {});
    response.complete = true;
  }
  return response;
}

std::string post_text(const std::string& path, const std::string& body, const std::string& headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{}Content-Length: "
      "{}\r\n\r\n{}",
      path, headers, body.size(), body);
}

ClientResponse HttpClient::get(const std::string& path, const std::string& headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n", path, headers));
  return read_response();
}

ClientResponse HttpClient::post(const std::string& path, const std::string& body,
                                const std::string& headers) {
  send(post_text(path, body, headers));
  return read_response();
}

bool HttpClient::closed_within(double seconds) {
  pollfd wait{fd_, POLLIN, 0};
  while (::poll(&wait, 1, static_cast<int>(seconds * 1000)) > 0) {
    if (!fill()) return true;
  }
  return false;
}

void HttpClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void HttpClient::end_sending() {
  ::shutdown(fd_, SHUT_WR);
}

void HttpClient::reset() {
  const linger hard{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

void HttpClient::shrink_receive_buffer(int bytes) {
  setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

std::vector<std::string> sse_data(const std::string& body) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = std::min(body.find("\n\n", at), body.size());
    std::string event = body.substr(at, end - at);
    if (event.starts_with("event: ")) event.erase(0, event.find('\n') + 1);  // typed events have a name first
    if (event.starts_with("data: ")) out.push_back(event.substr(6));
    at = end + 2;
  }
  return out;
}

}  // namespace gapless::testing
