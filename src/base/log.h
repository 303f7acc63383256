// Log lines on stderr. Any thread. Prompts, completions and keys are never logged.
#pragma once

#include <spdlog/spdlog.h>

namespace gapless {

// level: spdlog's names ("warn", "info", "debug"); json: one JSON object per line instead of text. Call once,
// before threads start.
void init_logging(spdlog::level::level_enum level, bool json);

}  // namespace gapless
