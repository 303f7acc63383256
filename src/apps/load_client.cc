#include "apps/load_client.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/sse_response.h"
#include "base/clock.h"

namespace gapless {

namespace {

struct AddressFree {
  void operator()(addrinfo* a) const { freeaddrinfo(a); }
};
using Address = std::unique_ptr<addrinfo, AddressFree>;

Result<Address> resolve(const LoadTarget& target) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found); error != 0) {
    return Status::invalid("--url: cannot resolve {}: {}", target.host, gai_strerror(error));
  }
  return Address(found);
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// One request on its own connection.
struct Exchange {
  Fd fd;
  std::string to_send;
  size_t sent = 0;
  SseResponse response;
  LoadRecord record;
  size_t index = 0;
  bool ended = false;
};

class LoadRun {
 public:
  LoadRun(const LoadTarget& target, Address address, const LoadFeed& feed, LoadLimits limits)
      : target_(target),
        address_(std::move(address)),
        feed_(feed),
        limits_(limits),
        epoll_(epoll_create1(0)) {}

  void run() {
    begin_ = steady_seconds();
    next_ = feed_.next();
    while ((next_ || !open_.empty()) && !feed_.stopped()) {
      while (may_start()) {
        start(*next_);
        next_ = feed_.next();
      }
      wait();
      expire();
    }
  }

 private:
  double elapsed() const { return steady_seconds() - begin_; }
  bool has_room() const { return limits_.concurrency == 0 || int(open_.size()) < limits_.concurrency; }
  bool may_start() const { return next_ && has_room() && elapsed() >= next_->arrival; }

  void start(const LoadRequest& request) {
    auto exchange = std::make_unique<Exchange>();
    exchange->index = started_++;
    exchange->record.start = elapsed();
    const std::string& body = request.body;
    const std::string auth =
        target_.api_key.empty() ? "" : "Authorization: Bearer " + target_.api_key + "\r\n";
    exchange->to_send = fmt::format(
        "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n{}Content-Length: "
        "{}\r\nConnection: close\r\n\r\n{}",
        target_.path, target_.host, target_.port, auth, body.size(), body);
    exchange->fd = Fd(socket(address_->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int fd = exchange->fd.get();
    if (fd < 0 || (connect(fd, address_->ai_addr, address_->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      return finish(*exchange, fmt::format("cannot connect: {}", std::strerror(errno)));
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(EPOLL_CTL_ADD, *exchange, EPOLLOUT);
    open_.push_back(std::move(exchange));
  }

  void watch(int operation, Exchange& exchange, uint32_t events) {
    epoll_event event{.events = events, .data = {.ptr = &exchange}};
    CHECK_EQ(epoll_ctl(epoll_.get(), operation, exchange.fd.get(), &event), 0);
  }

  void wait() {
    double seconds = 1.0;
    if (next_ && has_room()) seconds = std::clamp(next_->arrival - elapsed(), 0.0, 1.0);
    epoll_event events[256];
    const int n = epoll_wait(epoll_.get(), events, 256, int(seconds * 1000 + 0.999));
    for (int i = 0; i < n; ++i) handle(*static_cast<Exchange*>(events[i].data.ptr));
    std::erase_if(open_, [](const auto& exchange) { return exchange->ended; });
  }

  void handle(Exchange& exchange) {
    if (exchange.sent < exchange.to_send.size()) {
      send_some(exchange);
    } else {
      receive(exchange);
    }
  }

  void send_some(Exchange& exchange) {
    const ssize_t n = send(exchange.fd.get(), exchange.to_send.data() + exchange.sent,
                           exchange.to_send.size() - exchange.sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
      return finish(exchange, fmt::format("cannot send: {}", std::strerror(errno)));
    exchange.sent += size_t(std::max<ssize_t>(n, 0));
    if (exchange.sent == exchange.to_send.size()) watch(EPOLL_CTL_MOD, exchange, EPOLLIN);
  }

  void receive(Exchange& exchange) {
    char buffer[16384];
    const ssize_t n = recv(exchange.fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return finish(exchange, fmt::format("connection lost: {}", std::strerror(errno)));
    const double now = elapsed();
    SseResponse& response = exchange.response;
    response.feed({buffer, size_t(n)},
                  [&](std::string_view json) { note_event(json, now, exchange.record); });
    exchange.record.status = response.status();
    if (response.broken()) return finish(exchange, "the answer is not HTTP");
    if (response.done() || n == 0) return finish(exchange, end_error(exchange, n == 0));
  }

  static std::string end_error(const Exchange& exchange, bool closed) {
    const SseResponse& response = exchange.response;
    if (response.status() == 0) return "the connection closed without an answer";
    if (response.status() != 200) return fmt::format("HTTP {}: {}", response.status(), response.error_text());
    if (exchange.record.stamps.empty()) return "an answer without tokens";
    return closed && !response.done() ? "the connection closed before [DONE]" : "";
  }

  // wait() or expire() drops the exchange.
  void finish(Exchange& exchange, std::string error) {
    exchange.record.error = std::move(error);
    exchange.ended = true;
    feed_.done(exchange.index, std::move(exchange.record));
  }

  void expire() {
    const double now = elapsed();
    for (const auto& exchange : open_) {
      if (now - exchange->record.start > limits_.timeout)
        finish(*exchange, fmt::format("no end within {:g} s (--timeout)", limits_.timeout));
    }
    std::erase_if(open_, [](const auto& exchange) { return exchange->ended; });
  }

  const LoadTarget& target_;
  const Address address_;
  const LoadFeed& feed_;
  const LoadLimits limits_;
  std::vector<std::unique_ptr<Exchange>> open_;
  Fd epoll_;
  std::optional<LoadRequest> next_;
  size_t started_ = 0;
  double begin_ = 0;
};

// Is `json` an event whose list of choices is empty ("choices": [])?
bool without_choices(std::string_view json) {
  size_t at = json.find("\"choices\"");
  if (at == std::string_view::npos) return false;
  at = json.find_first_not_of(": \t", at + 9);
  if (at == std::string_view::npos || json[at] != '[') return false;
  at = json.find_first_not_of(" \t", at + 1);
  return at != std::string_view::npos && json[at] == ']';
}

}  // namespace

Result<LoadTarget> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return Status::invalid("--url {}: must start with http://", url);
  std::string rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  LoadTarget target{.host = rest, .port = "80", .path = "/v1/completions", .api_key = ""};
  const size_t bracket = rest.starts_with("[") ? rest.find(']') : std::string::npos;
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    target.host = rest.substr(0, colon);
    target.port = rest.substr(colon + 1);
  }
  if (bracket != std::string::npos) target.host = rest.substr(1, bracket - 1);
  const bool digits =
      !target.port.empty() && target.port.find_first_not_of("0123456789") == std::string::npos;
  if (target.host.empty() || !digits) return Status::invalid("--url {}: expected http://HOST:PORT", url);
  return target;
}

void note_event(std::string_view json, double now, LoadRecord& record) {
  const size_t at = json.find("\"usage\"");
  // Most servers repeat "usage": null in every event; parsing those would make this client the bottleneck.
  if (at != std::string_view::npos && json.substr(json.find_first_not_of(": ", at + 7), 4) != "null") {
    const auto usage = nlohmann::json::parse(json, nullptr, false).value("usage", nlohmann::json());
    if (usage.is_object()) {
      record.prompt_tokens = usage.value("prompt_tokens", int64_t{-1});
      record.completion_tokens = usage.value("completion_tokens", int64_t{-1});
    }
  }
  if (!without_choices(json)) record.stamps.push_back(now);
}

Status run_load(const LoadTarget& target, const LoadFeed& feed, LoadLimits limits) {
  ASSIGN_OR_RETURN(Address address, resolve(target));
  LoadRun(target, std::move(address), feed, limits).run();
  return {};
}

Result<std::vector<LoadRecord>> run_load(const LoadTarget& target, const std::vector<LoadRequest>& requests,
                                         LoadLimits limits) {
  std::vector<LoadRecord> records(requests.size());
  size_t next = 0;
  const LoadFeed feed{
      .next = [&] { return next < requests.size() ? std::optional(requests[next++]) : std::nullopt; },
      .done = [&](size_t index, LoadRecord record) { records[index] = std::move(record); },
      .stopped = [] { return false; }};
  RETURN_IF_ERROR(run_load(target, feed, limits));
  return records;
}

}  // namespace gapless
