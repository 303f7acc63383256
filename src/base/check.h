// Broken invariants. CHECK is always on and ends the process with the values it saw; DCHECK only in builds
// without NDEBUG. Bad input is never a CHECK: that is a Status (base/status.h) in the reply of the request
// that carried it.
#pragma once

#include <fmt/format.h>

#include <string>

namespace gapless {

[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& detail);

namespace internal {
inline std::string check_detail() {
  return {};
}
template <class... Args>
std::string check_detail(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
template <class A, class B>
std::string check_values(const A& a, const B& b) {
  return fmt::format("{} vs {}", a, b);
}
}  // namespace internal
}  // namespace gapless

// CHECK(cond) or CHECK(cond, "format {}", value).
#define CHECK(cond, ...)                                                                                  \
  do {                                                                                                    \
    if (!(cond)) [[unlikely]]                                                                             \
      ::gapless::check_failed(__FILE__, __LINE__, #cond, ::gapless::internal::check_detail(__VA_ARGS__)); \
  } while (false)

#define GAPLESS_CHECK_OP(a, op, b)                                                  \
  do {                                                                              \
    const auto& check_a = (a);                                                      \
    const auto& check_b = (b);                                                      \
    if (!(check_a op check_b)) [[unlikely]]                                         \
      ::gapless::check_failed(__FILE__, __LINE__, #a " " #op " " #b,                \
                              ::gapless::internal::check_values(check_a, check_b)); \
  } while (false)
#define CHECK_EQ(a, b) GAPLESS_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) GAPLESS_CHECK_OP(a, !=, b)
#define CHECK_LE(a, b) GAPLESS_CHECK_OP(a, <=, b)
#define CHECK_LT(a, b) GAPLESS_CHECK_OP(a, <, b)
#define CHECK_GE(a, b) GAPLESS_CHECK_OP(a, >=, b)
#define CHECK_GT(a, b) GAPLESS_CHECK_OP(a, >, b)

#ifdef NDEBUG
#define DCHECK(...) \
  do {              \
  } while (false)
#else
#define DCHECK(...) CHECK(__VA_ARGS__)
#endif
