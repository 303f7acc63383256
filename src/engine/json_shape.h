// How deep and how wide a JSON text is: looked at before it is parsed into something that keeps the order of
// members, which costs the square of their number. Any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace gapless {

struct JsonShape {
  int depth = 0;       // of nested arrays and objects
  size_t members = 0;  // of the object that has the most
};

inline constexpr size_t kMaxOrderedMembers = 1000;

// Of a text that is JSON; of another one it is some number. One pass.
JsonShape shape_of_json(std::string_view text);
// An error that begins with `what`, where an object has more than kMaxOrderedMembers.
Status check_members(const JsonShape& shape, std::string_view what);

}  // namespace gapless
