// A trace's report as text for people and as JSON for programs.
#include <nlohmann/json.hpp>

#include "apps/trace_report.h"

namespace gapless {

namespace {

// Microseconds with three digits, in a unit that fits.
std::string time_text(double us) {
  if (us == 0) return "0";
  if (us < 1000) return fmt::format("{:.{}f} us", us, us < 10 ? 2 : us < 100 ? 1 : 0);
  if (us < 1e6) return fmt::format("{:.{}f} ms", us / 1e3, us < 1e4 ? 2 : us < 1e5 ? 1 : 0);
  return fmt::format("{:.2f} s", us / 1e6);
}

std::string percent_text(double share) {
  return fmt::format("{:.2f} %", share * 100);
}

std::string gaps_text(const Lengths& gaps) {
  return fmt::format("{} gaps: p50 {}, p99 {}, longest {}", gaps.count, time_text(gaps.p50),
                     time_text(gaps.p99), time_text(gaps.max));
}

std::string step_text(const FileSpan& step) {
  return step.batch == kNoTraceArg ? step.name : fmt::format("{} {}", step.name, step.batch);
}

std::string steps_text(const TraceReport& report) {
  std::string text =
      fmt::format("steps          {} in {}", report.step_count(), time_text(report.end - report.begin));
  const char* separator = ": ";
  for (const TracePhase& kind : report.steps) {
    text += fmt::format("{}{} {} (mean {}, p50 {})", separator, kind.lengths.count, kind.name,
                        time_text(kind.lengths.mean()), time_text(kind.lengths.p50));
    separator = ", ";
  }
  return text + "\n";
}

std::string device_text(const TraceReport& report) {
  const SteadyDecode& steady = report.steady;
  std::string text =
      fmt::format("device busy    {} of the time, {} while there was work ({} idle times)\n",
                  percent_text(report.busy), percent_text(report.busy_with_work), report.idle_gaps);
  text += fmt::format("               {}\n", gaps_text(report.gaps));
  if (steady.steps == 0) {
    text += fmt::format("steady decode  none: fewer than {} decode steps in a row\n", kSteadySteps);
  } else {
    text += fmt::format("steady decode  busy {} in {} steps in {} stretch{}\n", percent_text(steady.busy),
                        steady.steps, steady.stretches, steady.stretches == 1 ? "" : "es");
    text += fmt::format("               {}\n", gaps_text(steady.gaps));
  }
  if (report.wake.count > 0) {
    text += fmt::format("wake           p50 {}, p99 {}, longest {}: from the device's end to the scheduler\n",
                        time_text(report.wake.p50), time_text(report.wake.p99), time_text(report.wake.max));
  }
  return text;
}

std::string phases_text(const TraceReport& report) {
  std::string text = fmt::format("\n{:<12} {:<14} {:>8} {:>10} {:>10} {:>10}\n", "thread", "span", "count",
                                 "mean", "p99", "per step");
  for (const TracePhase& phase : report.phases) {
    text += fmt::format("{:<12} {:<14} {:>8} {:>10} {:>10} {:>10}\n", phase.thread, phase.name,
                        phase.lengths.count, time_text(phase.lengths.mean()), time_text(phase.lengths.p99),
                        time_text(phase.lengths.sum / double(report.step_count())));
  }
  return text;
}

std::string gap_text(const DeviceGap& gap) {
  std::string text = fmt::format("  {} at {:.3f} ms, between {} and {}\n", time_text(gap.length()),
                                 gap.before.end / 1e3, step_text(gap.before), step_text(gap.after));
  for (const Activity& activity : gap.host) {
    std::string shares;
    for (const auto& [name, share] : activity.shares)
      if (share >= 0.005)
        shares += fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", name, share * 100);
    if (!shares.empty()) text += fmt::format("    {:<12} {}\n", activity.thread, shares);
  }
  return text;
}

nlohmann::json lengths_json(const Lengths& lengths) {
  return {{"count", lengths.count}, {"mean_us", lengths.mean()}, {"p50_us", lengths.p50},
          {"p99_us", lengths.p99},  {"max_us", lengths.max},     {"sum_us", lengths.sum}};
}

nlohmann::json phases_json(const std::vector<TracePhase>& phases, size_t steps) {
  nlohmann::json out = nlohmann::json::array();
  for (const TracePhase& phase : phases) {
    nlohmann::json row = lengths_json(phase.lengths);
    row["thread"] = phase.thread;
    row["span"] = phase.name;
    row["per_step_us"] = phase.lengths.sum / double(steps);
    out.push_back(std::move(row));
  }
  return out;
}

nlohmann::json gap_json(const DeviceGap& gap) {
  nlohmann::json host = nlohmann::json::object();
  for (const Activity& activity : gap.host)
    for (const auto& [name, share] : activity.shares) host[activity.thread][name] = share;
  return {{"us", gap.length()},
          {"at_us", gap.before.end},
          {"before", step_text(gap.before)},
          {"after", step_text(gap.after)},
          {"host", std::move(host)}};
}

}  // namespace

std::string report_text(const TraceReport& report) {
  std::string text = steps_text(report) + device_text(report) + phases_text(report);
  if (!report.longest.empty()) text += "\nlongest gaps, and what the host did in them\n";
  for (const DeviceGap& gap : report.longest) text += gap_text(gap);
  return text;
}

std::string report_json(const TraceReport& report) {
  nlohmann::json longest = nlohmann::json::array();
  for (const DeviceGap& gap : report.longest) longest.push_back(gap_json(gap));
  const SteadyDecode& steady = report.steady;
  const nlohmann::json json{{"steps", report.step_count()},
                            {"seconds", (report.end - report.begin) / 1e6},
                            {"kinds", phases_json(report.steps, report.step_count())},
                            {"device_busy", report.busy},
                            {"device_busy_with_work", report.busy_with_work},
                            {"idle_times", report.idle_gaps},
                            {"gaps", lengths_json(report.gaps)},
                            {"steady_decode",
                             {{"stretches", steady.stretches},
                              {"steps", steady.steps},
                              {"device_busy", steady.busy},
                              {"gaps", lengths_json(steady.gaps)}}},
                            {"wake", lengths_json(report.wake)},
                            {"phases", phases_json(report.phases, report.step_count())},
                            {"longest_gaps", std::move(longest)}};
  return json.dump() + "\n";
}

}  // namespace gapless
