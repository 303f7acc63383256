#include "server/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <unordered_set>

#include "base/log.h"
#include "base/thread.h"
#include "base/trace_names.h"
#include "server/connection.h"
#include "server/listen_socket.h"
#include "server/router.h"

namespace gapless {

namespace net = boost::asio;

namespace {

constexpr int64_t kReservedDescriptors = 128;  // for what is not a client
constexpr size_t kOverloadConnections = 64;    // beyond the limit, to be told 503 properly
constexpr std::chrono::milliseconds kTick{250}, kShortestTick{20};
constexpr std::chrono::milliseconds kErrorEventTime{
    1000};  // for open streams to take their last event at shutdown

// Written whole or not at all, for a process that waits for it.
Status write_port_file(const std::string& path, uint16_t port) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary);
  file << port << "\n";
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return Status::invalid("--port-file {}: {}", path, std::strerror(errno));
  }
  return {};
}

// Collects wakes from engine threads: one post to the event loop for a whole engine step.
class WakeList : public std::enable_shared_from_this<WakeList> {
 public:
  explicit WakeList(net::io_context& io) : io_(&io) {}

  void add(std::weak_ptr<Connection> connection) {
    std::lock_guard lock(mutex_);
    if (!io_) return;
    waiting_.push_back(std::move(connection));
    if (std::exchange(posted_, true)) return;
    net::post(*io_, [self = shared_from_this()] { self->run(); });
  }

  // The event loop is about to go.
  void close() {
    std::lock_guard lock(mutex_);
    io_ = nullptr;
    waiting_.clear();
  }

 private:
  void run() {
    std::vector<std::weak_ptr<Connection>> woken;
    {
      std::lock_guard lock(mutex_);
      woken.swap(waiting_);
      posted_ = false;
    }
    for (const auto& weak : woken) {
      if (const auto connection = weak.lock()) connection->wake();
    }
  }

  std::mutex mutex_;
  net::io_context* io_;
  std::vector<std::weak_ptr<Connection>> waiting_;
  bool posted_ = false;
};

}  // namespace

class HttpServer::Impl final : public ConnectionHost {
 public:
  Impl(ServerConfig config, std::vector<ListenSocket> sockets, int64_t descriptor_limit)
      : config_(std::move(config)),
        router_(config_),
        sockets_(std::move(sockets)),
        wakes_(std::make_shared<WakeList>(io_)),
        ticker_(io_),
        max_connections_(limit_of(config_, descriptor_limit)),
        request_number_(std::random_device{}() | uint64_t(std::random_device{}()) << 32) {
    acceptors_.reserve(sockets_.size());
    for (ListenSocket& socket : sockets_) acceptors_.emplace_back(io_, socket.fd.release());
  }

  void start();
  void stop_and_join();
  void shutdown();
  void wait();

  const ServerConfig& config() const override { return config_; }
  Router& router() override { return router_; }
  std::string next_request_id() override {
    return fmt::format("{:016x}", ++request_number_ * 0x9E3779B97F4A7C15u);  // odd factor: no two alike
  }
  std::function<void()> waker(std::weak_ptr<Connection> connection) override {
    return [wakes = wakes_, connection = std::move(connection)] { wakes->add(connection); };
  }
  void on_answered() override { requests_.fetch_add(1, std::memory_order_relaxed); }
  void on_closed(const std::shared_ptr<Connection>& connection) override;

  const std::vector<ListenSocket>& sockets() const { return sockets_; }
  ServerStats stats() const { return {open_.load(), responding_.load(), requests_.load()}; }

 private:
  static size_t limit_of(const ServerConfig& config, int64_t descriptors) {
    const int64_t most = std::max<int64_t>(16, descriptors - kReservedDescriptors);
    return size_t(config.max_connections > 0 ? std::min<int64_t>(config.max_connections, most) : most);
  }

  void event_loop();
  net::awaitable<void> accept_loop(net::posix::stream_descriptor& acceptor, int family);
  net::awaitable<void> tick_loop();
  void admit(int fd, int family);
  void tick();
  void drain_tick(Connection::Clock::time_point now);
  void start_ticking();
  void begin_drain();
  void finish_now();
  void count_connections();

  const ServerConfig config_;
  net::io_context io_{1};
  Router router_;
  std::vector<ListenSocket> sockets_;
  std::vector<net::posix::stream_descriptor> acceptors_;
  const std::shared_ptr<WakeList> wakes_;
  net::steady_timer ticker_;
  const size_t max_connections_;
  uint64_t request_number_;
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::optional<Connection::Clock::time_point> drain_deadline_, last_deadline_;
  bool ticking_ = false, finished_ = false;
  std::atomic<int> shutdowns_{0};
  std::atomic<int64_t> open_{0}, responding_{0}, requests_{0};
  std::mutex join_mutex_;
  NamedThread thread_;
};

void HttpServer::Impl::start() {
  for (size_t i = 0; i < acceptors_.size(); i++) {
    net::co_spawn(io_, accept_loop(acceptors_[i], sockets_[i].family), net::detached);
  }
  thread_ = NamedThread("http", [this] { event_loop(); });
}

// io_context::run in two halves: sleep until something is ready, then run all that is, in one span.
void HttpServer::Impl::event_loop() {
  while (io_.run_one() > 0) {
    const double begin = steady_seconds();
    const size_t handlers = io_.poll();
    if (handlers == 0) continue;
    if (const auto serving = router_.serving())
      serving->trace.add(trace::kBurst, begin, steady_seconds(), int64_t(handlers));
  }
}

net::awaitable<void> HttpServer::Impl::accept_loop(net::posix::stream_descriptor& acceptor, int family) {
  while (!finished_) {
    const auto [error] = co_await acceptor.async_wait(net::posix::stream_descriptor::wait_read, kAwait);
    if (error || finished_) co_return;
    const int fd = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      admit(fd, family);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      spdlog::warn("cannot accept connections: {}", std::strerror(errno));
      net::steady_timer pause(io_, std::chrono::milliseconds(100));
      co_await pause.async_wait(kAwait);
    }
  }
}

void HttpServer::Impl::admit(int fd, int family) {
  if (connections_.size() >= max_connections_ + kOverloadConnections) {
    constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: "
        "close\r\n\r\n";
    [[maybe_unused]] const ssize_t sent = ::send(fd, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
    return;
  }
  Connection::Socket socket(io_);
  boost::system::error_code error;
  socket.assign(net::generic::stream_protocol(family, 0), fd, error);
  if (error) {
    ::close(fd);
    return;
  }
  const bool overloaded = connections_.size() >= max_connections_;
  auto connection = std::make_shared<Connection>(*this, std::move(socket), overloaded);
  connections_.insert(connection);
  count_connections();
  start_ticking();
  net::co_spawn(io_, connection->run(), [this, connection](const std::exception_ptr& thrown) {
    if (!thrown) return;
    spdlog::error("a connection ended by an exception");  // out of memory
    connection->close();
    on_closed(connection);
  });
}

void HttpServer::Impl::on_closed(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
  count_connections();
}

void HttpServer::Impl::count_connections() {
  open_ = static_cast<int64_t>(connections_.size());
  if (const auto serving = router_.serving()) serving->metrics.connections.set(double(connections_.size()));
}

// Ticks only while there is something to watch, so that an idle server sleeps.
void HttpServer::Impl::start_ticking() {
  if (std::exchange(ticking_, true)) return;
  net::co_spawn(io_, tick_loop(), net::detached);
}

net::awaitable<void> HttpServer::Impl::tick_loop() {
  const auto shortest = std::min({config_.header_timeout, config_.body_timeout, config_.write_timeout,
                                  config_.idle_timeout, config_.shutdown_timeout});
  const auto interval = std::clamp(shortest / 4, kShortestTick, kTick);
  while (!finished_ && (!connections_.empty() || drain_deadline_)) {
    ticker_.expires_after(interval);
    co_await ticker_.async_wait(kAwait);
    tick();
  }
  ticking_ = false;
}

void HttpServer::Impl::tick() {
  const auto now = Connection::Clock::now();
  const auto all = std::vector<std::shared_ptr<Connection>>(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->tick(now);
  responding_ = std::count_if(all.begin(), all.end(), [](const auto& c) { return c->responding(); });
  if (drain_deadline_ && !finished_) drain_tick(now);
}

void HttpServer::Impl::drain_tick(Connection::Clock::time_point now) {
  if (responding_ == 0 || (last_deadline_ && now >= *last_deadline_)) return finish_now();
  if (last_deadline_ || now < *drain_deadline_) return;
  spdlog::warn("shutdown: {} responses did not finish in time and are ended", responding_.load());
  last_deadline_ = now + kErrorEventTime;
  const auto all = std::vector<std::shared_ptr<Connection>>(connections_.begin(), connections_.end());
  for (const auto& connection : all) {
    connection->cancel_response(Status(StatusCode::kUnavailable, "the server is shutting down"));
  }
}

void HttpServer::Impl::begin_drain() {
  if (drain_deadline_ || finished_) return;
  drain_deadline_ = Connection::Clock::now() + config_.shutdown_timeout;
  tick();
  start_ticking();
}

void HttpServer::Impl::finish_now() {
  if (std::exchange(finished_, true)) return;
  for (auto& acceptor : acceptors_) acceptor.close();
  const auto all = std::vector<std::shared_ptr<Connection>>(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->close();
  ticker_.cancel();
}

void HttpServer::Impl::shutdown() {
  const int calls = ++shutdowns_;
  router_.drain();
  net::post(io_, [this, calls] { calls == 1 ? begin_drain() : finish_now(); });
}

void HttpServer::Impl::wait() {
  std::lock_guard lock(join_mutex_);
  thread_.join();
}

void HttpServer::Impl::stop_and_join() {
  net::post(io_, [this] { finish_now(); });
  wait();
  if (const auto serving = router_.serving()) serving->live->stop();
  wakes_->close();
  for (const ListenSocket& socket : sockets_) {
    if (!socket.unix_path.empty()) ::unlink(socket.unix_path.c_str());
  }
}

Result<std::unique_ptr<HttpServer>> HttpServer::create(ServerConfig config) {
  const int64_t descriptors = raise_descriptor_limit();
  ASSIGN_OR_RETURN(std::vector<ListenSocket> sockets, open_listen_sockets(config));
  if (!config.port_file.empty()) RETURN_IF_ERROR(write_port_file(config.port_file, sockets.front().port));
  auto impl = std::make_unique<Impl>(std::move(config), std::move(sockets), descriptors);
  impl->start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  impl_->stop_and_join();
}

uint16_t HttpServer::port() const {
  return impl_->sockets().front().port;
}
std::vector<std::string> HttpServer::urls() const {
  std::vector<std::string> urls;
  for (const ListenSocket& socket : impl_->sockets()) urls.push_back(socket.url);
  return urls;
}
void HttpServer::set_engine(EngineApi& engine) {
  impl_->router().attach(engine);
}
void HttpServer::shutdown() {
  impl_->shutdown();
}
void HttpServer::wait() {
  impl_->wait();
}
ServerStats HttpServer::stats() const {
  return impl_->stats();
}

}  // namespace gapless
