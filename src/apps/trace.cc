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

constexpr double kStepsDrawn = 4;

// What --from and --ms say; else some steps in the middle of the longest steady decode, or of the whole.
TraceWindow window_of(const TraceArgs& args, const TraceReport& report) {
  const SteadyDecode& steady = report.steady;
  const bool any = steady.steps > 0;
  const double begin = any ? steady.longest_begin : report.begin, end = any ? steady.longest_end : report.end;
  const double step = (report.end - report.begin) * report.busy_with_work / double(report.step_count());
  TraceWindow window;
  const double length = args.ms > 0 ? args.ms * 1e3 : std::min(kStepsDrawn * step, end - begin);
  window.begin = args.from >= 0 ? args.from * 1e3 : (begin + end - length) / 2;
  window.end = window.begin + std::max(length, 1.0);
  return window;
}

Status write_picture(const TraceArgs& args, const TraceFile& trace, const TraceReport& report) {
  ASSIGN_OR_RETURN(const std::string svg, trace_svg(trace, window_of(args, report)));
  std::ofstream file(args.svg);
  file << svg;
  file.close();
  if (!file) return Status::invalid("--svg {}: {}", args.svg, std::strerror(errno));
  return {};
}

}  // namespace

int run_trace(const TraceArgs& args) {
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
