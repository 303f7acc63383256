// How far a long command is, on stderr: a line that is written over on a terminal. Where no terminal reads it
// the caller chooses: nothing, or a line every few seconds.
#pragma once

#include <cstdio>
#include <limits>
#include <string>

namespace gapless {

// A terminal reads stderr.
bool stderr_is_terminal();

class Progress {
 public:
  static constexpr double kNoLines = std::numeric_limits<double>::infinity();
  // seconds: at least so long between two lines where there is no terminal.
  Progress(std::FILE* out, bool terminal, double seconds) : out_(out), terminal_(terminal), every_(seconds) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  // What stays: the last text of a part, as a line of its own.
  void finish(const std::string& text);

 private:
  void clear();

  std::FILE* const out_;
  const bool terminal_;
  const double every_;
  double last_ = -std::numeric_limits<double>::infinity();  // seconds of the steady clock
  size_t width_ = 0;                                        // of what the terminal shows
};

}  // namespace gapless
