#include "sampling/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace gapless {

StopMatcher::Stop::Stop(std::string t) : text(std::move(t)), fallback(text.size() + 1, 0) {
  CHECK(!text.empty(), "a stop string is empty");
  for (size_t n = 1; n < text.size(); ++n) {
    int32_t k = fallback[n];
    while (k > 0 && text[size_t(k)] != text[n]) k = fallback[size_t(k)];
    fallback[n + 1] = text[size_t(k)] == text[n] ? k + 1 : 0;
  }
}

void StopMatcher::Stop::feed(char byte) {
  while (matched > 0 && text[size_t(matched)] != byte) matched = fallback[size_t(matched)];
  if (text[size_t(matched)] == byte) ++matched;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  stops_.reserve(stops.size());
  for (std::string& text : stops) stops_.emplace_back(std::move(text));
}

std::optional<size_t> StopMatcher::feed(std::string_view bytes) {
  CHECK(!matched_, "text after a stop string");
  if (stops_.empty()) {
    text_bytes_ += int64_t(bytes.size());
    return std::nullopt;
  }
  for (char byte : bytes) {
    ++text_bytes_;
    held_ = 0;
    std::optional<size_t> found;
    for (size_t i = 0; i < stops_.size(); ++i) {
      stops_[i].feed(byte);
      held_ = std::max(held_, int64_t(stops_[i].matched));
      if (stops_[i].complete() && (!found || stops_[i].text.size() > stops_[*found].text.size())) found = i;
    }
    if (!found) continue;
    held_ = int64_t(stops_[*found].text.size());
    matched_ = true;
    return found;
  }
  return std::nullopt;
}

}  // namespace gapless
