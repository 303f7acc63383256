// `gapless trace`: the figures of traces made by hand are exact, and bad files are told what is wrong with
// them.
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli.h"
#include "apps/trace_file.h"
#include "apps/trace_report.h"
#include "apps/trace_svg.h"
#include "base/trace_names.h"

namespace gapless {
namespace {

// The rings of an engine, with times in milliseconds, written and read back.
class Recorded {
 public:
  explicit Recorded(size_t spans = 1024) : tracer_(spans) {}
  void add(const char* ring, const TraceName& name, double begin_ms, double end_ms, int64_t a = kNoTraceArg,
           int64_t b = kNoTraceArg, int64_t c = kNoTraceArg) {
    tracer_.ring(ring).add(name, start_ + begin_ms / 1e3, start_ + end_ms / 1e3, a, b, c);
  }
  std::string text() const { return tracer_.chrome_json(); }
  TraceFile file() const { return parse_trace(text(), "t").value(); }

 private:
  const double start_ = steady_seconds();
  Tracer tracer_;
};

// 20 decode steps of 1 ms with gaps of 0.1 ms, but for one of 0.5 ms before step 10.
struct DecodeWithALongGap : Recorded {
  DecodeWithALongGap() {
    double t = 0;
    for (int i = 0; i < 20; i++) {
      if (i > 0) t += i == 10 ? 0.5 : 0.1;
      add(trace::kDevice, trace::kDecode, t, t + 1, i, 8, 8);
      t += 1;
    }
  }  // 22.3 ms
};
constexpr double kGapBegin = 10 + 9 * 0.1;  // milliseconds

constexpr double kNear = 0.01;  // microseconds: files have nanoseconds

TEST(TraceReport, CountsStepsBusyTimeAndGaps) {
  const TraceReport report = analyse_trace(DecodeWithALongGap().file(), 2).value();
  EXPECT_EQ(report.step_count(), 20u);
  ASSERT_EQ(report.steps.size(), 1u);
  EXPECT_EQ(report.steps[0].name, "decode");
  EXPECT_NEAR(report.steps[0].lengths.mean(), 1000, kNear);
  EXPECT_NEAR(report.end - report.begin, 22'300, kNear);
  EXPECT_NEAR(report.busy, 20 / 22.3, 1e-6);
  EXPECT_NEAR(report.busy_with_work, 20 / 22.3, 1e-6);
  EXPECT_EQ(report.idle_gaps, 0u);
  EXPECT_EQ(report.gaps.count, 19u);
  EXPECT_NEAR(report.gaps.p50, 100, kNear);
  EXPECT_NEAR(report.gaps.p99, 500, kNear);
  EXPECT_NEAR(report.gaps.max, 500, kNear);
  EXPECT_EQ(report.steady.stretches, 1u);
  EXPECT_EQ(report.steady.steps, 20u);
  EXPECT_NEAR(report.steady.busy, 20 / 22.3, 1e-6);
  EXPECT_NEAR(report.steady.longest_end - report.steady.longest_begin, 22'300, kNear);
  ASSERT_EQ(report.longest.size(), 2u);
  EXPECT_NEAR(report.longest[0].length(), 500, kNear);
  EXPECT_EQ(report.longest[0].before.batch, 9);
  EXPECT_EQ(report.longest[0].after.batch, 10);
}

TEST(TraceReport, SaysWhatTheHostDidInAGap) {
  DecodeWithALongGap recorded;
  // Of the 0.5 ms: 0.1 of a wait in which the scheduler woke for half of it, 0.2 of composing, 0.1 of
  // nothing, 0.1 of a launch that goes on.
  recorded.add(trace::kScheduler, trace::kWait, 5, kGapBegin + 0.1, 9);
  recorded.add(trace::kScheduler, trace::kWake, kGapBegin + 0.05, kGapBegin + 0.1, 9);
  recorded.add(trace::kScheduler, trace::kCompose, kGapBegin + 0.1, kGapBegin + 0.3, 10, 8, 8);
  recorded.add(trace::kScheduler, trace::kLaunch, kGapBegin + 0.4, kGapBegin + 0.7, 10, 8, 8);
  recorded.add(trace::kForward, trace::kForwardWait, 0, 20);
  recorded.add(trace::kHttp, trace::kBurst, 3, 4, 1);  // elsewhere
  const TraceReport report = analyse_trace(recorded.file(), 1).value();
  ASSERT_EQ(report.longest.size(), 1u);
  const std::vector<Activity>& host = report.longest[0].host;
  ASSERT_EQ(host.size(), 2u);
  EXPECT_EQ(host[0].thread, "scheduler");
  const std::vector<std::pair<std::string, double>> expected{
      {"compose", 0.4}, {"launch", 0.2}, {"wait", 0.1}, {"wake", 0.1}};
  ASSERT_EQ(host[0].shares.size(), expected.size());
  for (const auto& [name, share] : expected) {
    const auto it = std::find_if(host[0].shares.begin(), host[0].shares.end(),
                                 [&, n = name](const auto& have) { return have.first == n; });
    ASSERT_NE(it, host[0].shares.end()) << name;
    EXPECT_NEAR(it->second, share, 1e-4) << name;
  }
  EXPECT_EQ(host[0].shares[0].first, "compose");
  EXPECT_EQ(host[1].thread, "forward");
  EXPECT_NEAR(host[1].shares.at(0).second, 1, 1e-6);

  EXPECT_EQ(report.wake.count, 1u);
  EXPECT_NEAR(report.wake.p99, 50, kNear);
  const auto compose = std::find_if(report.phases.begin(), report.phases.end(),
                                    [](const TracePhase& phase) { return phase.name == "compose"; });
  ASSERT_NE(compose, report.phases.end());
  EXPECT_NEAR(compose->lengths.sum, 200, kNear);
  const std::string text = report_text(report);
  EXPECT_NE(text.find("500 us at 10.9"), std::string::npos) << text;
  EXPECT_NE(text.find("compose 40 %, launch 20 %"), std::string::npos) << text;
}

// Without requests the device has nothing to wait for; prompts end a steady stretch.
TEST(TraceReport, IdlenessIsNoGapAndPromptsEndAStretch) {
  Recorded recorded;
  double t = 0;
  const auto steps = [&](int count, const TraceName& name) {
    for (int i = 0; i < count; i++, t += 1) recorded.add(trace::kDevice, name, t, t + 1, i, 1, 1);
  };
  steps(20, trace::kDecode);
  recorded.add(trace::kScheduler, trace::kIdle, t + 0.2, t + 9.9);
  t += 10;
  steps(2, trace::kExtend);
  steps(16, trace::kDecode);
  steps(1, trace::kMixed);
  steps(15, trace::kDecode);  // too few
  const TraceReport report = analyse_trace(recorded.file(), 5).value();
  EXPECT_EQ(report.step_count(), 54u);
  EXPECT_EQ(report.idle_gaps, 1u);
  EXPECT_NEAR(report.busy, 54.0 / 64, 1e-6);
  EXPECT_NEAR(report.busy_with_work, 1, 1e-6);
  EXPECT_NEAR(report.gaps.max, 0, kNear);
  EXPECT_EQ(report.gaps.count, 52u);
  EXPECT_EQ(report.steady.stretches, 2u);
  EXPECT_EQ(report.steady.steps, 36u);
  EXPECT_NEAR(report.steady.busy, 1, 1e-6);
}

TEST(TraceReport, WhereTheSchedulersSpansAreGoneNothingIsSaid) {
  Recorded recorded(8);
  for (int i = 0; i < 12; i++) recorded.add(trace::kScheduler, trace::kCompose, i, i + 0.5, i);
  for (int i = 0; i < 6; i++) recorded.add(trace::kDevice, trace::kDecode, 2 * i, 2 * i + 1, i);
  const TraceReport report = analyse_trace(recorded.file(), 0).value();
  EXPECT_EQ(report.step_count(), 4u);  // from 4 ms on
  EXPECT_TRUE(report.longest.empty());
}

TEST(TraceReport, JsonHasTheSameFigures) {
  const auto json = nlohmann::json::parse(report_json(analyse_trace(DecodeWithALongGap().file(), 3).value()));
  EXPECT_EQ(json.at("steps"), 20);
  EXPECT_NEAR(json.at("gaps").at("max_us").get<double>(), 500, kNear);
  EXPECT_NEAR(json.at("steady_decode").at("device_busy").get<double>(), 20 / 22.3, 1e-6);
  ASSERT_EQ(json.at("longest_gaps").size(), 3u);
  EXPECT_EQ(json.at("longest_gaps")[0].at("after"), "decode 10");
}

TEST(TraceReport, TextNamesItsFigures) {
  const std::string text = report_text(analyse_trace(DecodeWithALongGap().file(), 1).value());
  EXPECT_NE(text.find(": 20 decode (mean 1.00 ms, p50 1.00 ms)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("in 20 steps in 1 stretch\n"), std::string::npos) << text;
}

std::string run(std::vector<const char*> argv, int expected) {
  argv.insert(argv.begin(), {"gapless", "trace"});
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_cli(int(argv.size()), argv.data()), expected);
  const std::string err = ::testing::internal::GetCapturedStderr();
  return ::testing::internal::GetCapturedStdout() + err;
}

TEST(TraceCommand, RefusesFlagsThatContradictOneAnother) {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{"t.json", "--from", "3"}, "--from chooses what a picture shows: give --svg FILE too"},
      {{"t.json", "--ms", "3"}, "--ms chooses what a picture shows"},
      {{"t.json", "--svg", "t.svg", "--json"}, "--svg draws a picture instead of a report: without --json"},
  };
  for (const auto& [argv, message] : cases) {
    const std::string text = run(argv, kExitUsage);
    EXPECT_NE(text.find(message), std::string::npos) << text;
  }
}

TEST(TraceCommand, ReadsStdin) {
  std::istringstream text(DecodeWithALongGap().text());
  std::streambuf* const before = std::cin.rdbuf(text.rdbuf());
  const std::string report = run({"-", "--json"}, kExitOk);
  EXPECT_EQ(nlohmann::json::parse(report).at("steps"), 20);
  const std::string error = run({"-"}, kExitRuntime);
  std::cin.rdbuf(before);
  EXPECT_NE(error.find("what came from stdin is empty"), std::string::npos) << error;
}

TEST(TraceReport, PercentilesAreOfTheNearestRank) {
  std::vector<double> values;
  for (int i = 200; i > 0; i--) values.push_back(i);
  const Lengths lengths = lengths_of(values);
  EXPECT_EQ(lengths.p50, 100);
  EXPECT_EQ(lengths.p99, 198);
  EXPECT_EQ(lengths.max, 200);
  EXPECT_EQ(lengths.mean(), 100.5);
  EXPECT_EQ(lengths_of({}).p99, 0);
  EXPECT_EQ(lengths_of({7}).p50, 7);
}

TEST(TraceFileTest, BadFilesAreToldWhy) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "some.json is empty: was the server reachable"},
      {"\n", "some.json is empty"},
      {"GGUF\x03, and then some more bytes", "not a trace: it begins with 'GGUF , and then some mor...'"},
      {"{\"traceEvents\": [", "is not JSON"},
      {"{}", "not a trace: it is a JSON object with nothing and no list of traceEvents"},
      {"{\"traceEvents\": 3}", "a JSON object with traceEvents and no list of traceEvents"},
      {R"({"steps": 3, "gaps": 1})", "a JSON object with gaps, steps and no list"},
      {R"({"error": {"message": "no key", "code": 401}})", "not a trace: it is a server's error, 'no key'"},
      {"7", "not a trace: it is a JSON number"},
      {R"([{"ph":"M","name":"x"},{"ph":"X","name":"a","tid":1,"ts":5}])",
       "traceEvents[1] cannot be read: key 'dur'"},
      {R"([{"ph":"X","name":"a","tid":1,"ts":5,"dur":-1}])",
       "traceEvents[0] cannot be read: its dur is negative"},
      {R"([{"ph":"X","name":7,"tid":1,"ts":5,"dur":1}])",
       "traceEvents[0] cannot be read: type must be string"},
      {"[3]", "traceEvents[0] cannot be read"},
  };
  for (const auto& [text, message] : bad) {
    const Status status = parse_trace(text, "some.json").status();
    EXPECT_NE(status.message().find(message), std::string::npos) << text << ": " << status.message();
    EXPECT_NE(status.message().find("some.json"), std::string::npos);
  }
  EXPECT_NE(read_trace("/nonexistent/t.json").status().message().find("No such file"), std::string::npos);
  EXPECT_NE(read_trace("/").status().message().find("Is a directory"), std::string::npos);
}

TEST(TraceFileTest, WithoutStepsThereIsNothingToReport) {
  const TraceFile other = parse_trace(R"([{"ph":"X","name":"a","tid":1,"ts":5,"dur":1}])", "t").value();
  EXPECT_NE(analyse_trace(other, 1).status().message().find("no thread 'device'"), std::string::npos);
  Recorded recorded;
  recorded.add(trace::kDevice, trace::kWait, 0, 1, 3);
  EXPECT_NE(analyse_trace(recorded.file(), 1).status().message().find("no step"), std::string::npos);
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) count++;
  return count;
}

TEST(TraceSvg, DrawsLanesStepsAndGaps) {
  DecodeWithALongGap recorded;
  recorded.add(trace::kScheduler, trace::kCompose, kGapBegin, kGapBegin + 0.4, 10, 8, 8);
  const TraceFile file = recorded.file();
  const double start = device_steps(file).front().begin;
  // From step 8 to step 12: five steps, four gaps.
  const std::string svg = trace_svg(file, {start + 8'800, start + 14'600}).value();
  EXPECT_EQ(count_of(svg, ">decode "), 2 * 5u);  // each box has a title and a label
  EXPECT_EQ(count_of(svg, "<title>gap "), 4u);
  EXPECT_EQ(count_of(svg, "<title>gap 500.0 us"), 1u);
  EXPECT_EQ(count_of(svg, ">compose 400.0 us<"), 1u);
  EXPECT_EQ(count_of(svg, ">scheduler<"), 1u);
  EXPECT_EQ(count_of(svg, ">detokenizer<"), 0u);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count_of(svg, "@media(prefers-color-scheme:dark)"), 1u);
  EXPECT_EQ(count_of(svg, "fill=\"#fff\""), 0u);  // nothing that is drawn insists on white paper

  EXPECT_NE(trace_svg(file, {1e11, 1e11 + 250})
                .status()
                .message()
                .find("nothing was recorded in the 0.25 ms from 100000000 ms on"),
            std::string::npos);
  for (int i = 0; i < 500; i++) recorded.add(trace::kHttp, trace::kBurst, i * 0.01, i * 0.01 + 0.005, 1);
  EXPECT_NE(trace_svg(recorded.file(), {start, start + 1e6}).status().message().find("draw less"),
            std::string::npos);
}

TEST(TraceSvg, TypicalStepsAreWithoutARareGap) {
  const TraceFile file = DecodeWithALongGap().file();
  const double start = device_steps(file).front().begin;
  const TraceWindow window = typical_steps(file, analyse_trace(file, 0).value(), 3);
  EXPECT_NEAR(window.end - window.begin, 3 * 1100, kNear);
  EXPECT_TRUE(window.end <= start + kGapBegin * 1e3 + kNear || window.begin > start + kGapBegin * 1e3);
  const TraceWindow all = typical_steps(file, analyse_trace(file, 0).value(), 30);
  EXPECT_NEAR(all.begin, start, kNear);
  EXPECT_NEAR(all.end, start + 22'300, kNear);
}

TEST(TraceSvg, StaysSmall) {
  Recorded recorded;
  for (int i = 0; i < 250; i++) recorded.add(trace::kDevice, trace::kExtend, i, i + 0.5, 1'000'000 + i);
  const TraceFile file = recorded.file();
  const double start = device_steps(file).front().begin;
  EXPECT_LT(trace_svg(file, {start, start + 250'000}).value().size(), 100'000u);
}

}  // namespace
}  // namespace gapless
