// Failures a user can see. A Status says what was seen, the limit, and the field or flag that changes it.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace gapless {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // HTTP 400: the request itself is wrong
  kUnauthenticated,    // 401
  kNotFound,           // 404
  kPayloadTooLarge,    // 413
  kResourceExhausted,  // 429: the queue is full, try later
  kCancelled,          // the client has gone or the request was aborted
  kDeadlineExceeded,   // 504
  kUnavailable,        // 503: loading, draining or overloaded
  kInternal,           // 500: our bug or a device error
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  template <class... Args>
  static Status invalid(fmt::format_string<Args...> format, Args&&... args) {
    return {StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Status internal(fmt::format_string<Args...> format, Args&&... args) {
    return {StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...)};
  }

  // The request field that is at fault ("max_tokens"), and OpenAI's machine-readable code
  // ("context_length_exceeded").
  Status&& with_param(std::string param) && {
    param_ = std::move(param);
    return std::move(*this);
  }
  Status&& with_error_code(std::string error_code) && {
    error_code_ = std::move(error_code);
    return std::move(*this);
  }

  bool is_ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& param() const { return param_; }
  const std::string& error_code() const { return error_code_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_, param_, error_code_;
};

// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    CHECK(!std::get<1>(state_).is_ok(), "a Result without a value needs an error");
  }

  bool is_ok() const { return state_.index() == 0; }
  explicit operator bool() const { return is_ok(); }
  T& value() & {
    CHECK(is_ok(), "{}", status().message());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(is_ok(), "{}", status().message());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(is_ok(), "{}", status().message());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Status status() const { return is_ok() ? Status::ok() : std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace gapless

#define RETURN_IF_ERROR(expr)                                                 \
  do {                                                                        \
    if (::gapless::Status status_ = (expr); !status_.is_ok()) return status_; \
  } while (false)

#define GAPLESS_CONCAT_INNER(a, b) a##b
#define GAPLESS_CONCAT(a, b) GAPLESS_CONCAT_INNER(a, b)
// ASSIGN_OR_RETURN(auto x, function()): x gets the value, or this function returns the error.
#define ASSIGN_OR_RETURN(lhs, expr) GAPLESS_ASSIGN_OR_RETURN(GAPLESS_CONCAT(result_, __LINE__), lhs, expr)
#define GAPLESS_ASSIGN_OR_RETURN(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.is_ok()) return tmp.status();         \
  lhs = std::move(tmp).value()
