// Log lines on stderr. Any thread. Prompts, completions and keys are never logged.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace gapless {

// level: spdlog's names ("warn", "info", "debug"); json: one JSON object per line instead of text. Call once,
// before threads start.
void init_logging(spdlog::level::level_enum level, bool json);

// `text` (UTF-8) as the inside of a JSON string.
std::string json_escaped(std::string_view text);

}  // namespace gapless
