// A request body as JSON, with the limits that keep a hostile one harmless.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gapless {

inline constexpr int kMaxJsonDepth = 64;
// A value costs up to 64 bytes once parsed: this bounds a body of tiny values to about 128 MB.
inline constexpr int64_t kMaxJsonValues = 2'000'000;

class JsonBody {
 public:
  // The body must be an object. A message never repeats the body's bytes: it says where the fault is. Any
  // thread.
  static Result<JsonBody> parse(std::string text);

  const nlohmann::json& root() const { return root_; }
  // The text of a top-level member's value exactly as the client wrote it: a template shows keys in the
  // client's order, which the parsed form does not keep.
  std::string raw(const std::string& key) const;

 private:
  JsonBody() = default;

  struct Span {
    size_t begin, end;
  };
  Status scan();

  std::string text_;
  nlohmann::json root_;
  std::map<std::string, Span, std::less<>> members_;
};

}  // namespace gapless
