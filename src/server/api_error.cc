#include "server/api_error.h"

#include "base/log.h"
#include "server/json_writer.h"

namespace gapless {

namespace {

const char* error_type(int http_status) {
  if (http_status == 401) return "authentication_error";
  if (http_status == 429) return "rate_limit_error";
  return http_status >= 500 ? "server_error" : "invalid_request_error";
}

const char* messages_error_type(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status >= 500 ? "api_error" : "invalid_request_error";
  }
}

const char* default_code(StatusCode code) {
  switch (code) {
    case StatusCode::kUnauthenticated:
      return "invalid_api_key";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kPayloadTooLarge:
      return "payload_too_large";
    case StatusCode::kResourceExhausted:
      return "queue_full";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kInternal:
      return "internal_error";
    default:
      return "";
  }
}

// Messages quote what a client wrote; the log must not hold it. All from the first quote to the last goes,
// for what stands between may itself hold quotes. Rust's messages quote with backticks.
std::string without_quotes(const std::string& message) {
  constexpr const char* kQuotes = "\"'`";
  const size_t first = message.find_first_of(kQuotes), last = message.find_last_of(kQuotes);
  if (first == std::string::npos || first == last) return printable(message, 200);
  return printable(message.substr(0, first) + "..." + message.substr(last + 1), 200);
}

// Libraries may complain in the client's own words: what is wrong with a grammar follows its field's name and
// a colon; what a chat template says does not begin with the name, as all that this program says of messages.
bool is_in_client_words(const std::string& message, const std::string& param) {
  return message.starts_with(param + ": ") || (param == "messages" && !message.starts_with(param));
}

std::string reason_of(int http_status, const std::string& message, const std::string& param,
                      const std::string& code) {
  std::string out = fmt::format("error={}", code.empty() ? fmt::format("{}", http_status) : code);
  if (!param.empty()) out += fmt::format(" param={}", printable(param, 60));
  if (code.empty() && is_in_client_words(message, param)) return out;
  return out + fmt::format(" \"{}\"", without_quotes(message));
}

std::string code_of(const Status& status) {
  return status.error_code().empty() ? default_code(status.code()) : status.error_code();
}

std::string error_object(int http_status, std::string_view message, std::string_view param,
                         std::string_view code) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("error").begin_object();
  w.key("message").string(message);
  w.key("type").string(error_type(http_status));
  w.key("param").string_or_null(param);
  w.key("code").string_or_null(code);
  w.end_object().end_object();
  return out;
}

}  // namespace

int http_status_of(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kPayloadTooLarge:
      return 413;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kCancelled:
      return 499;
    case StatusCode::kDeadlineExceeded:
      return 504;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kInternal:
      return 500;
  }
  return 500;
}

std::string public_message(const Status& status, const std::string& request_id) {
  if (status.code() != StatusCode::kInternal) return status.message();
  spdlog::error("{} internal error: {}", request_id, without_quotes(status.message()));
  return fmt::format("internal error; the server's log has the details under {}", request_id);
}

std::string error_json(const Status& status, const std::string& request_id) {
  return error_object(http_status_of(status.code()), public_message(status, request_id), status.param(),
                      code_of(status));
}

std::string messages_error_json(int http_status, std::string_view message, const std::string& request_id) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("type").string("error");
  w.key("error").begin_object();
  w.key("type").string(messages_error_type(http_status)).key("message").string(message);
  w.end_object();
  w.key("request_id").string(request_id).end_object();
  return out;
}

std::string error_reason(const Status& status) {
  return reason_of(http_status_of(status.code()), status.message(), status.param(), code_of(status));
}

HttpResponse error_response(const Status& status, const std::string& request_id) {
  HttpResponse response;
  response.status = http_status_of(status.code());
  response.message = public_message(status, request_id);
  response.body = error_object(response.status, response.message, status.param(), code_of(status));
  response.reason = error_reason(status);
  if (response.status == 429 || response.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(int http_status, const std::string& message, const std::string& error_code) {
  HttpResponse response;
  response.status = http_status;
  response.message = message;
  response.body = error_object(http_status, message, "", error_code);
  response.reason = reason_of(http_status, message, "", error_code);
  return response;
}

}  // namespace gapless
