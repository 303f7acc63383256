#include "server/written_json.h"

#include <optional>

#include "base/check.h"

namespace gapless {

namespace {

// The closing quote of the string that begins at `open`.
size_t string_end(std::string_view text, size_t open) {
  size_t i = open + 1;
  while (text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return i;
}

// Calls on_part(begin, end) for each part of an array or object: what stands between its commas.
template <class OnPart>
void for_each_part(std::string_view text, OnPart on_part) {
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (c == '"') {
      i = string_end(text, i);
    } else if (c == '{' || c == '[') {
      if (++depth == 1) begin = i + 1;
    } else if (c == ',' && depth == 1) {
      on_part(text.substr(begin, i - begin));
      begin = i + 1;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      on_part(text.substr(begin, i - begin));
    }
  }
}

}  // namespace

std::vector<WrittenJson> written_elements(const WrittenJson& array) {
  std::vector<WrittenJson> elements;
  elements.reserve(array.value.size());
  if (array.value.empty()) return elements;
  for_each_part(array.text, [&](std::string_view part) {
    elements.push_back({array.value[elements.size()], part});
  });
  CHECK(elements.size() == array.value.size(), "{} elements in the text, {} in the value", elements.size(),
        array.value.size());
  return elements;
}

std::string written_member(const WrittenJson& object, const std::string& key) {
  std::optional<std::string_view> found;
  for_each_part(object.text, [&](std::string_view part) {
    const size_t open = part.find('"');
    if (open == std::string_view::npos) return;
    const size_t end = string_end(part, open);
    // Of duplicate keys the last one counts, as in the parser.
    if (part.substr(open + 1, end - open - 1) == key) found = part.substr(part.find(':', end) + 1);
  });
  return found ? std::string(*found) : object.value.at(key).dump();  // a key that was written with escapes
}

}  // namespace gapless
