#include "server/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>

#include "base/log.h"
#include "server/api_error.h"
#include "server/listen_socket.h"

namespace gapless {

namespace net = boost::asio;
namespace http = boost::beast::http;

namespace {

// What a client may send ahead while its response is under way. Beyond it the socket is left alone until the
// response is complete.
constexpr size_t kPipelineBytes = 64 << 10;
constexpr size_t kKeptBufferBytes = 8 << 10;  // what an idle connection may hold on to
constexpr int kSendBufferBytes = 256 << 10;   // bounds what the system buffers for a reader that has stopped
constexpr std::chrono::milliseconds kLingerTotal{5000};

// RFC 9110, 5.6.7.
std::string http_date(std::time_t now) {
  std::tm parts{};
  char text[40];
  const size_t n = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &parts));
  return {text, n};
}

std::string chunk_of(std::string_view data, bool last) {
  std::string out;
  if (!data.empty()) out = fmt::format("{:x}\r\n{}\r\n", data.size(), data);
  if (last) out += "0\r\n\r\n";
  return out;
}

}  // namespace

Connection::Connection(ConnectionHost& host, Socket socket, bool overloaded)
    : host_(host),
      socket_(std::move(socket)),
      overloaded_(overloaded),
      from_this_machine_(peer_is_this_machine(socket_.native_handle())),
      wake_timer_(socket_.get_executor()) {
  const int on = 1;
  setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on,
             sizeof on);  // a unix socket refuses it, harmlessly
  setsockopt(socket_.native_handle(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
}

net::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  while (keep_alive_ && !gone_) {
    if (!co_await serve_one()) break;
  }
  close();
  host_.on_closed(self);
}

net::awaitable<bool> Connection::serve_one() {
  if (!co_await wait_for_request()) co_return false;
  std::optional<HttpRequest> request = co_await read_request();
  if (!request) co_return false;
  const bool ok = co_await respond(*std::move(request));
  if (buffer_.size() == 0 && buffer_.capacity() > kKeptBufferBytes) buffer_.shrink_to_fit();
  co_return ok;
}

// Until then the connection is idle and may be closed without an answer.
net::awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  set_deadline(host_.config().idle_timeout);
  const auto [error] = co_await socket_.async_wait(Socket::wait_read, kAwait);
  clear_deadline();
  co_return !error && !gone_;
}

net::awaitable<void> Connection::reject(const HttpRequest& request, HttpResponse response) {
  keep_alive_ = false;
  const int status = response.status;
  const std::string reason = response.reason;
  host_.router().decorate(request, response);
  if (co_await send_whole(request, std::move(response))) co_await linger();
  finish(request, status, reason);
}

net::awaitable<bool> Connection::respond(HttpRequest request) {
  responding_ = true;
  std::string body = std::move(request.body);
  const HttpRequest meta = request;  // without the body, which the handler takes
  request.body = std::move(body);
  if (host_.router().draining()) keep_alive_ = false;
  Reply reply = host_.router().dispatch(std::move(request));
  bool ok = false;
  if (auto* response = std::get_if<HttpResponse>(&reply)) {
    const int status = response->status;
    const std::string reason = response->reason;
    host_.router().decorate(meta, *response);
    ok = co_await send_whole(meta, std::move(*response));
    finish(meta, status, reason);
  } else {
    ok = co_await run_pending(meta, std::get<std::shared_ptr<PendingResponse>>(std::move(reply)));
  }
  responding_ = false;
  co_return ok;
}

net::awaitable<bool> Connection::run_pending(const HttpRequest& request,
                                             std::shared_ptr<PendingResponse> pending) {
  pending_ = pending;
  pending->start(host_.waker(weak_from_this()));
  watch_peer();
  int status = 499;
  std::string reason;
  bool ok = true, end = false;
  while (ok && !end) {
    woken_ = false;
    PendingResponse::Part part = pending->take();
    if (part.empty() && !gone_) {
      co_await wait_for_wake();
      if (!woken_) part = pending->keepalive();
    }
    ok = !gone_;
    if (!ok || part.empty()) continue;
    if (part.head) status = part.head->status;
    if (part.head) reason = part.head->reason;
    if (!part.reason.empty()) reason = part.reason;
    end = part.end;
    ok = co_await send_part(request, part);
  }
  pending_.reset();
  if (!ok) pending->cancel(Status(StatusCode::kCancelled, "the client has gone"));
  std::string fields = pending->log_fields();
  if (!fields.empty() && !reason.empty()) fields += ' ';
  finish(request, ok ? status : 499, fields + reason);
  co_return ok;
}

net::awaitable<void> Connection::wait_for_wake() {
  if (woken_) co_return;
  wake_timer_.expires_after(host_.config().sse_keepalive);
  co_await wake_timer_.async_wait(kAwait);
}

net::awaitable<bool> Connection::send_part(const HttpRequest& request, PendingResponse::Part& part) {
  if (part.head) host_.router().decorate(request, *part.head);
  if (part.head && part.end) {
    part.head->body += part.data;
    co_return co_await send_whole(request, *std::move(part.head));
  }
  std::string out;
  if (part.head) {
    if (http10_) keep_alive_ = false;  // no chunks there: the body ends with the connection
    out = head_text(*part.head, std::nullopt);
  }
  out += http10_ ? part.data : chunk_of(part.data, part.end);
  co_return co_await write_all(out);
}

net::awaitable<bool> Connection::send_whole(const HttpRequest& request, HttpResponse response) {
  std::string out = head_text(response, response.body.size());
  if (request.method == "HEAD") co_return co_await write_all(out);
  if (response.body.size() <= kSendBufferBytes) {
    out += response.body;
    co_return co_await write_all(out);
  }
  if (!co_await write_all(out)) co_return false;
  co_return co_await write_all(response.body);
}

std::string Connection::head_text(const HttpResponse& response, std::optional<size_t> content_length) const {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\nServer: gapless\r\nDate: {}\r\n", response.status,
                  std::string_view(reason.data(), reason.size()), http_date(std::time(nullptr)));
  if (!response.content_type.empty()) out += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  const bool may_have_body = response.status != 204 && response.status != 304;
  if (content_length && may_have_body) out += fmt::format("Content-Length: {}\r\n", *content_length);
  if (!content_length && !http10_) out += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive_) out += "Connection: close\r\n";
  if (keep_alive_ && http10_) out += "Connection: keep-alive\r\n";
  return out + "\r\n";
}

// Every piece that the client takes renews the deadline.
net::awaitable<bool> Connection::write_all(std::string_view data) {
  writing_ = true;
  while (!data.empty() && !gone_) {
    set_deadline(host_.config().write_timeout);
    const auto [error, bytes] =
        co_await socket_.async_write_some(net::buffer(data.data(), data.size()), kAwait);
    if (error) gone_ = true;
    data.remove_prefix(std::min(bytes, data.size()));
  }
  clear_deadline();
  writing_ = false;
  co_return !gone_;
}

// Closing with unread data would reset the connection, and the client might never see the answer: say that
// nothing follows, and drop what still comes for a while.
net::awaitable<void> Connection::linger() {
  ::shutdown(socket_.native_handle(), SHUT_WR);
  set_deadline(kLingerTotal);
  std::string sink(16 << 10, '\0');
  while (!gone_) {
    const auto [error, bytes] = co_await socket_.async_read_some(net::buffer(sink), kAwait);
    if (error) break;
  }
  clear_deadline();
}

void Connection::watch_peer() {
  if (watching_ || gone_) return;
  watching_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    self->watching_ = false;
    if (!error) self->on_readable();
  });
}

// While a response is under way: the end of the stream means that the client has gone (a client that closes
// only its sending side counts as gone too); bytes are the next request, kept for later.
void Connection::on_readable() {
  if (!pending_ || gone_) return;
  if (buffer_.size() >= kPipelineBytes) return;
  const auto space = buffer_.prepare(4096);
  const ssize_t n = ::recv(socket_.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
  if (n > 0) buffer_.commit(static_cast<size_t>(n));
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return client_gone();
  watch_peer();
}

void Connection::client_gone() {
  if (const auto serving = host_.router().serving()) serving->metrics.client_disconnects.add();
  close();
}

void Connection::drop_slow_reader() {
  if (const auto serving = host_.router().serving()) serving->metrics.slow_readers_dropped.add();
  slow_ = true;
  const ::linger reset{1, 0};  // what is still buffered for this client is worth nothing
  setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  close();
}

void Connection::wake() {
  woken_ = true;
  wake_timer_.cancel();
}

void Connection::tick(Clock::time_point now) {
  if (gone_) return;
  if (pending_ && pending_->backlog_exceeded()) return drop_slow_reader();
  if (now < deadline_) return;
  clear_deadline();
  if (writing_) return drop_slow_reader();
  timed_out_ = true;
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Connection::cancel_response(const Status& why) {
  keep_alive_ = false;
  if (!pending_) return;
  pending_->cancel(why);
  wake();
}

void Connection::close() {
  gone_ = true;
  if (pending_) pending_->cancel(Status(StatusCode::kCancelled, "the connection was closed"));
  boost::system::error_code ignored;
  socket_.close(ignored);
  wake();
}

void Connection::finish(const HttpRequest& request, int status, const std::string& fields) {
  host_.on_answered();
  const std::string endpoint = host_.router().endpoint_of(request.path);
  if (const auto serving = host_.router().serving()) serving->metrics.count_request(endpoint, status);
  const bool probe = request.method != "POST" && status < 400;
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - request.received).count();
  spdlog::log(probe ? spdlog::level::debug : spdlog::level::info, "{} {} {} {}{}{} {:.0f}ms{}", request.id,
              request.method.empty() ? "-" : request.method, endpoint, status, fields.empty() ? "" : " ",
              fields, ms, slow_ ? " (dropped: the client did not read)" : "");
}

}  // namespace gapless
