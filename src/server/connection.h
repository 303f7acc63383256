// One client connection: reads requests, writes responses, notices when the client has gone. Everything on
// the http thread.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_message.h"
#include "server/router.h"
#include "server/server_config.h"

namespace gapless {

class Connection;

// An operation's errors are values here, never exceptions.
inline constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

// What a connection needs of the server.
class ConnectionHost {
 public:
  virtual const ServerConfig& config() const = 0;
  virtual Router& router() = 0;
  virtual std::string next_request_id() = 0;
  // A function that wakes the connection; any thread may call it, also after the connection or the server has
  // gone.
  virtual std::function<void()> waker(std::weak_ptr<Connection> connection) = 0;
  virtual void on_answered() = 0;
  virtual void on_closed(const std::shared_ptr<Connection>& connection) = 0;

 protected:
  ~ConnectionHost() = default;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  // overloaded: there are too many connections; this one gets one 503 and is closed.
  Connection(ConnectionHost& host, Socket socket, bool overloaded);

  // The coroutine that serves the connection until it closes.
  boost::asio::awaitable<void> run();
  // The response under way has something to send.
  void wake();
  // Called a few times a second: enforces the deadlines.
  void tick(Clock::time_point now);
  bool responding() const { return responding_; }
  // Ends the response under way with this error; the connection closes after it.
  void cancel_response(const Status& why);
  // Aborts what runs and closes the socket.
  void close();

 private:
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  struct Incoming;  // the request being read

  Awaitable<void> serve();
  Awaitable<bool> serve_one();
  Awaitable<bool> wait_for_request();
  // nullopt: the connection is to be closed; an answer may have been sent.
  Awaitable<std::optional<HttpRequest>> read_request();
  Awaitable<boost::system::error_code> skip_empty_line();
  Awaitable<bool> read_body(Incoming& incoming, const HttpRequest& request);
  // Answers a request that was not read to its end, and gives the client time to see the answer.
  Awaitable<void> reject(const HttpRequest& request, HttpResponse response);
  Awaitable<void> reject_unreadable(const HttpRequest& request, const boost::system::error_code& error);
  Awaitable<bool> respond(HttpRequest request);
  Awaitable<bool> run_pending(const HttpRequest& request, std::shared_ptr<PendingResponse> pending);
  Awaitable<void> wait_for_wake();
  Awaitable<bool> send_part(const HttpRequest& request, PendingResponse::Part& part);
  Awaitable<bool> send_whole(const HttpRequest& request, HttpResponse response);
  Awaitable<bool> write_all(std::string_view data);
  Awaitable<void> linger();

  std::string head_text(const HttpResponse& response, std::optional<size_t> content_length) const;
  void watch_peer();
  void on_readable();
  void client_gone();
  void drop_slow_reader();
  void finish(const HttpRequest& request, int status, const std::string& fields);
  void set_deadline(std::chrono::milliseconds from_now) { deadline_ = Clock::now() + from_now; }
  void clear_deadline() { deadline_ = Clock::time_point::max(); }

  ConnectionHost& host_;
  Socket socket_;
  const bool overloaded_;
  const bool from_this_machine_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer wake_timer_;
  bool woken_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool timed_out_ = false;
  bool writing_ = false;
  bool watching_ = false;    // a wait for readability is outstanding
  bool responding_ = false;  // a request was read and is not answered yet
  bool gone_ = false;        // the client closed its side, or the socket is closed
  bool keep_alive_ = true;
  bool http10_ = false;
  bool slow_ = false;
  std::shared_ptr<PendingResponse> pending_;
};

}  // namespace gapless
