// A parsed JSON value beside the text it was parsed from, for passing parts on exactly as they were written:
// a template shows keys in the client's order, which the parsed form does not keep.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gapless {

struct WrittenJson {
  const nlohmann::json& value;
  std::string_view text;  // of the same value; blanks around it are allowed
};

// The elements of an array. One pass over the text.
std::vector<WrittenJson> written_elements(const WrittenJson& array);
// The text of a member that the object has. One pass over the object's text.
std::string written_member(const WrittenJson& object, const std::string& key);

}  // namespace gapless
