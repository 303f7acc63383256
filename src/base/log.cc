#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace gapless {
namespace {

// %* in a pattern: the message as the inside of a JSON string.
class JsonEscaped : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = json_escaped({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JsonEscaped>(); }
};

}  // namespace

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (uint8_t(c) < 0x20) {
      out += fmt::format("\\u{:04x}", uint8_t(c));
    } else {
      out += c;
    }
  }
  return out;
}

void init_logging(spdlog::level::level_enum level, bool json) {
  // The colour sink writes escape codes only on a terminal, so files and pipes stay plain.
  auto logger =
      std::make_shared<spdlog::logger>("gapless", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(level);
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<JsonEscaped>('*').set_pattern(
      json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%*"})" : "%H:%M:%S.%e %^%L%$ %v");
  logger->set_formatter(std::move(formatter));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace gapless
