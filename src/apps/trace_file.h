// A trace as GET /trace or `gapless bench --trace` wrote it: Chrome's trace event format, read back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/trace.h"

namespace gapless {

struct FileSpan {
  std::string name;
  double begin = 0, end = 0;  // microseconds from the trace's start
  int64_t batch = kNoTraceArg, rows = kNoTraceArg, tokens = kNoTraceArg;

  double length() const { return end - begin; }
};

// A thread, or the device's stream.
struct FileThread {
  std::string name;
  std::vector<FileSpan> spans;  // by begin; of two that begin together the longer one first
  int64_t overwritten = 0;      // older spans that were no longer kept
};

struct TraceFile {
  std::vector<FileThread> threads;  // in the order in which a viewer shows them

  const FileThread* find(const std::string& name) const;
};

// The error says what is wrong with the text and where; `path` is only for that.
Result<TraceFile> parse_trace(const std::string& text, const std::string& path);
// path: "-" is stdin.
Result<TraceFile> read_trace(const std::string& path);
// Before something is measured: an error when a trace could not be written there. Creates the file if there
// is none. An empty path is fine.
Status check_trace_output(const std::string& path);
// Everything that is still in the rings, as GET /trace answers it.
Status write_trace(const Tracer& tracer, const std::string& path);

}  // namespace gapless
