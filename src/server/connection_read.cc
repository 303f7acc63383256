// The reading half of a connection: request heads and bodies, and what is wrong with them. The only file that
// parses HTTP.
#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>

#include "server/api_error.h"
#include "server/connection.h"

namespace gapless {

namespace net = boost::asio;
namespace http = boost::beast::http;

namespace {

// The body of a request that is refused is read and dropped up to this size, so that the connection can be
// kept.
constexpr uint64_t kDroppedBodyBytes = 64 << 10;

bool is_id_text(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const bool coded = text[i] == '%' && digits.size() == 2 &&
                       std::from_chars(digits.data(), digits.data() + 2, value, 16).ptr == digits.data() + 2;
    out += coded ? static_cast<char>(value) : text[i];
    if (coded) i += 2;
  }
  return out;
}

// Path and query of the target, which may be absolute.
void split_target(std::string_view target, HttpRequest& request) {
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && target[0] != '/') {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  const size_t mark = target.find('?');
  request.path = percent_decoded(target.substr(0, mark));
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
}

}  // namespace

struct Connection::Incoming {
  http::request_parser<http::string_body> parser;

  void describe(HttpRequest& request) {
    const auto& message = parser.get();
    const auto text = [&](http::field field) { return std::string(message[field]); };
    request.method = std::string(message.method_string());
    split_target(std::string_view(message.target().data(), message.target().size()), request);
    request.authorization = text(http::field::authorization);
    request.api_key = std::string(message["X-Api-Key"]);
    request.fetch_site = std::string(message["Sec-Fetch-Site"]);
    request.host = text(http::field::host);
    request.origin = text(http::field::origin);
    request.content_encoding = text(http::field::content_encoding);
    request.accept = text(http::field::accept);
    request.if_none_match = text(http::field::if_none_match);
    request.preflight_method = text(http::field::access_control_request_method);
    request.preflight_headers = text(http::field::access_control_request_headers);
    const auto id = message["X-Request-Id"];
    if (is_id_text(std::string_view(id.data(), id.size()))) request.id = std::string(id);
  }
  // What is wrong with the head in ways that the parser lets pass.
  std::optional<HttpResponse> refuse(const std::string& request_id) const {
    const auto& message = parser.get();
    const auto hosts = message.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && message.version() >= 11)) {  // RFC 9112, 3.2
      return error_response(Status::invalid("the request must have one Host header, it has {}", hosts),
                            request_id);
    }
    const auto codings = message.equal_range(http::field::transfer_encoding);
    for (auto it = codings.first; it != codings.second; ++it) {
      if (boost::beast::iequals(it->value(), "chunked") || boost::beast::iequals(it->value(), "identity"))
        continue;
      return error_response(501, "the only Transfer-Encoding that is understood here is chunked",
                            "unsupported_encoding");
    }
    return std::nullopt;
  }
  bool expects_continue() const {
    return boost::beast::iequals(parser.get()[http::field::expect], "100-continue");
  }
  bool has_long_body() const {
    return parser.chunked() || expects_continue() || parser.content_length().value_or(0) > kDroppedBodyBytes;
  }
};

net::awaitable<std::optional<HttpRequest>> Connection::read_request() {
  HttpRequest request;
  request.received = Clock::now();
  request.unique = host_.next_request_id();
  request.id = "req-" + request.unique;
  Incoming incoming;
  incoming.parser.header_limit(static_cast<uint32_t>(host_.config().max_header_bytes));
  incoming.parser.body_limit(static_cast<uint64_t>(host_.config().max_body_bytes));
  set_deadline(host_.config().header_timeout);
  boost::system::error_code error = co_await skip_empty_line();
  if (!error)
    error = std::get<0>(co_await http::async_read_header(socket_, buffer_, incoming.parser, kAwait));
  clear_deadline();
  if (error) {
    co_await reject_unreadable(request, error);
    co_return std::nullopt;
  }
  request.from_this_machine = from_this_machine_;
  incoming.describe(request);
  http10_ = incoming.parser.get().version() < 11;
  keep_alive_ = incoming.parser.keep_alive();
  if (std::optional<HttpResponse> refused = incoming.refuse(request.id)) {
    co_await reject(request, *std::move(refused));
    co_return std::nullopt;
  }
  if (overloaded_) {
    const Status status(StatusCode::kUnavailable, "too many connections, try again later");
    co_await reject(request, error_response(status, request.id));
    co_return std::nullopt;
  }
  if (!incoming.parser.is_done() && incoming.has_long_body()) {
    if (std::optional<HttpResponse> refused = host_.router().refuse_early(request)) {
      co_await reject(request, *std::move(refused));
      co_return std::nullopt;
    }
  }
  if (!co_await read_body(incoming, request)) co_return std::nullopt;
  request.body = std::move(incoming.parser.get().body());
  co_return request;
}

// RFC 9112, 2.2: some clients end a body with a line end too many.
net::awaitable<boost::system::error_code> Connection::skip_empty_line() {
  const auto begins = [this] {
    return std::string_view(static_cast<const char*>(buffer_.data().data()), buffer_.size()).substr(0, 2);
  };
  while (begins().empty() || begins() == "\r") {
    const auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(4096), kAwait);
    if (error) co_return error;
    buffer_.commit(bytes);
  }
  if (begins() == "\r\n") {
    buffer_.consume(2);
  } else if (begins().starts_with('\n')) {
    buffer_.consume(1);
  }
  co_return boost::system::error_code();
}

net::awaitable<bool> Connection::read_body(Incoming& incoming, const HttpRequest& request) {
  if (!incoming.parser.is_done() && incoming.expects_continue() && buffer_.size() == 0) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!co_await write_all(kContinue)) co_return false;
  }
  while (!incoming.parser.is_done()) {
    set_deadline(host_.config().body_timeout);
    const auto [error, bytes] = co_await http::async_read_some(socket_, buffer_, incoming.parser, kAwait);
    clear_deadline();
    if (error) {
      co_await reject_unreadable(request, error);
      co_return false;
    }
  }
  co_return true;
}

net::awaitable<void> Connection::reject_unreadable(const HttpRequest& request,
                                                   const boost::system::error_code& error) {
  if (gone_) co_return;
  HttpResponse response;
  if (timed_out_) {
    response = error_response(408, "the request did not arrive in time", "request_timeout");
  } else if (error == http::error::body_limit) {
    response = error_response(
        Status(StatusCode::kPayloadTooLarge, fmt::format("the body is larger than {} bytes (--max-body-size)",
                                                         host_.config().max_body_bytes)),
        request.id);
  } else if (error == http::error::header_limit) {
    response = error_response(
        431, fmt::format("the headers are larger than {} bytes", host_.config().max_header_bytes),
        "headers_too_large");
  } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message) {
    response =
        error_response(Status::invalid("this is not an HTTP/1.1 request: {}", error.message()), request.id);
  } else {
    co_return;  // the client closed or reset the connection
  }
  co_await reject(request, std::move(response));
}

}  // namespace gapless
