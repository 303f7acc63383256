// `gapless trace`: what a recorded trace says, as text, as JSON or as a picture.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "apps/cli.h"
#include "apps/trace_report.h"
#include "apps/trace_svg.h"

namespace gapless {

namespace {

constexpr size_t kStepsDrawn = 4;

TraceWindow window_of(const TraceArgs& args, const TraceFile& trace, const TraceReport& report) {
  TraceWindow window = typical_steps(trace, report, kStepsDrawn);
  const double length = args.ms > 0 ? args.ms * 1e3 : window.end - window.begin;
  if (args.from >= 0) window.begin = args.from * 1e3;
  window.end = window.begin + std::max(length, 1.0);
  return window;
}

Status write_picture(const TraceArgs& args, const TraceFile& trace, const TraceReport& report) {
  ASSIGN_OR_RETURN(const std::string svg, trace_svg(trace, window_of(args, trace, report)));
  std::ofstream file(args.svg);
  file << svg;
  file.close();
  if (!file) return Status::invalid("--svg {}: {}", args.svg, std::strerror(errno));
  return {};
}

Status check_args(const TraceArgs& args) {
  if (!args.svg.empty() && args.json)
    return Status::invalid("--svg draws a picture instead of a report: without --json");
  if (args.svg.empty() && (args.from >= 0 || args.ms > 0))
    return Status::invalid("{} chooses what a picture shows: give --svg FILE too",
                           args.from >= 0 ? "--from" : "--ms");
  return {};
}

}  // namespace

int run_trace(const TraceArgs& args) {
  if (const Status status = check_args(args); !status.is_ok()) return fail(kExitUsage, status);
  Result<TraceFile> trace = read_trace(args.file);
  if (!trace) return fail(kExitRuntime, trace.status());
  Result<TraceReport> report = analyse_trace(*trace, size_t(args.longest));
  if (!report) return fail(kExitRuntime, report.status());
  if (!args.svg.empty()) {
    const Status status = write_picture(args, *trace, *report);
    return status.is_ok() ? kExitOk : fail(kExitRuntime, status);
  }
  std::fputs((args.json ? report_json(*report) : report_text(*report)).c_str(), stdout);
  return kExitOk;
}

}  // namespace gapless
