#include "engine/json_shape.h"

#include <algorithm>
#include <vector>

namespace gapless {

JsonShape shape_of_json(std::string_view text) {
  JsonShape shape;
  std::vector<size_t> members;  // so far, of each value that is open
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      members.push_back(0);
      shape.depth = std::max(shape.depth, int(members.size()));
    } else if ((c == ']' || c == '}') && !members.empty()) {
      members.pop_back();
    } else if (c == ':' && !members.empty()) {
      shape.members = std::max(shape.members, ++members.back());
    }
  }
  return shape;
}

Status check_members(const JsonShape& shape, std::string_view what) {
  if (shape.members <= kMaxOrderedMembers) return {};
  return Status::invalid("{} has an object of {} members, at most {} are allowed", what, shape.members,
                         kMaxOrderedMembers);
}

}  // namespace gapless
