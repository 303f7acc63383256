// Chat templates for files that have none, by the name that --chat-template takes.
#pragma once

#include <span>
#include <string_view>

namespace gapless {

struct BuiltinTemplate {
  std::string_view name, source;
};

std::span<const BuiltinTemplate> builtin_template_table();
const BuiltinTemplate* find_builtin_template(std::string_view name);  // nullptr: no such name

}  // namespace gapless
