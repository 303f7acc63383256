#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace gapless {

void init_logging(spdlog::level::level_enum level, bool json) {
  // The colour sink writes escape codes only on a terminal, so files and pipes stay plain.
  auto logger =
      std::make_shared<spdlog::logger>("gapless", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(level);
  logger->set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%v"})"
                           : "%H:%M:%S.%e %^%L%$ %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace gapless
