#include "apps/progress.h"

#include <unistd.h>

#include "device/device.h"

namespace gapless {

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

void Progress::show(const std::string& text) {
  if (terminal_) {
    clear();
    std::fprintf(out_, "%s", text.c_str());
    width_ = text.size();
  } else if (every_ != kNoLines && steady_seconds() - last_ >= every_) {
    last_ = steady_seconds();
    std::fprintf(out_, "%s\n", text.c_str());
  }
  std::fflush(out_);
}

void Progress::finish(const std::string& text) {
  clear();
  if (terminal_ || every_ != kNoLines) std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void Progress::clear() {
  if (width_ == 0) return;
  std::fprintf(out_, "\r%*s\r", int(width_), "");
  std::fflush(out_);
  width_ = 0;
}

}  // namespace gapless
