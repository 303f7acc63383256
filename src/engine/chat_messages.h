// OpenAI's `messages` in the one form that chat templates expect.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace gapless {

// Content becomes a string (parts are joined; null or absent beside tool_calls is ""), tool-call arguments
// become objects, null fields are dropped, roles are known ones ("developer" is "system" unless the template
// knows it). Key order is kept: templates print it.
Result<nlohmann::ordered_json> normalise_messages(std::string_view messages, bool template_knows_developer);

// `text` is a JSON array (or object) nested no deeper than templates are given; else an error for `param`.
Status check_json(std::string_view text, bool want_array, const char* param);

}  // namespace gapless
