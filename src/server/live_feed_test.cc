// The parts of the live view: steps and gaps, what a slow viewer gets, and how much a frame may be.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/trace_names.h"
#include "server/live_composer.h"
#include "server/live_json.h"
#include "server/testing/fake_engine.h"

namespace gapless::testing {
namespace {

using nlohmann::json;

TraceRecord step(double begin, double end) {
  return {&trace::kDecode, begin, end, {1, 8, 9}};
}
TraceRecord idle(double begin, double end) {
  return {&trace::kIdle, begin, end, {}};
}

std::vector<double> lengths(const StepsReport& report) {
  std::vector<double> out;
  for (const auto& gap : report.gaps) out.push_back(gap.length);
  return out;
}

TEST(LiveSteps, AGapIsTimeBetweenStepsWithoutIdleness) {
  StepCounter counter;
  // The first step ever has no gap before it; a step that began early has one of 0.
  StepsReport report = counter.count(std::vector{step(1, 2), step(2.5, 3), step(2.75, 4)}, {}, 10);
  EXPECT_EQ(report.n, 3);
  EXPECT_EQ(report.rows, 24);
  EXPECT_EQ(report.tokens, 27);
  EXPECT_EQ(lengths(report), (std::vector<double>{0.5, 0}));
  EXPECT_EQ(report.gaps[0].at, 2);
  EXPECT_DOUBLE_EQ(report.busy, 2.75 / 3.25);
  // The scheduler was idle before the first of these, not before the second.
  report = counter.count(std::vector{step(6, 7), step(7.25, 8)}, std::vector{idle(4.5, 5.5)}, 10);
  EXPECT_EQ(lengths(report), std::vector<double>{0.25});
  // Its idleness was seen in the frame before.
  EXPECT_EQ(counter.count({}, std::vector{idle(8.5, 9)}, 10).n, 0);
  EXPECT_EQ(lengths(counter.count(std::vector{step(10, 11)}, {}, 10)), std::vector<double>{});
  // Not compared across a loss.
  counter.restart();
  EXPECT_EQ(lengths(counter.count(std::vector{step(20, 21), step(22, 23)}, {}, 10)), std::vector<double>{1});
}

TEST(LiveSteps, LongIdlenessCountsForOneFrame) {
  StepCounter counter;
  counter.count(std::vector{step(1, 2)}, {}, 0.5);
  const StepsReport report = counter.count(std::vector{step(100, 100.5)}, std::vector{idle(2, 99)}, 0.5);
  EXPECT_DOUBLE_EQ(report.busy, 0.5);
  EXPECT_EQ(counter.count({}, {}, 0.5).busy, 0);
}

TEST(LiveSteps, FiguresAndStretches) {
  std::vector<StepsReport::Gap> gaps;
  for (int i = 0; i < 250; i++) gaps.push_back({double(i), double(i % 100)});
  const GapFigures figures = figures_of(gaps);
  EXPECT_EQ(figures.max, 99);
  EXPECT_EQ(figures.p50, 41);
  EXPECT_NEAR(figures.mean, 44.5, 1e-9);
  EXPECT_EQ(figures_of({}).max, 0);
  const auto shown = longest_of_stretches(gaps, 100);
  ASSERT_EQ(shown.size(), 84u);
  for (size_t i = 0; i < shown.size(); i++) {
    EXPECT_EQ(size_t(shown[i].at) / 3, i) << "one of each three";
    for (size_t other = 3 * i; other < std::min(3 * i + 3, gaps.size()); other++)
      EXPECT_GE(shown[i].length, gaps[other].length);
  }
  EXPECT_EQ(longest_of_stretches(std::span(gaps).first(100), 100).size(), 100u);
  EXPECT_TRUE(longest_of_stretches({}, 100).empty());
}

std::shared_ptr<const LiveEvent> event(LiveEvent::Kind kind, const std::string& fields,
                                       std::vector<std::string> names) {
  return std::make_shared<LiveEvent>(
      LiveEvent{kind, fields, std::make_shared<const std::vector<std::string>>(std::move(names))});
}

TEST(LiveInbox, ASlowViewerGetsTheNewestFramesAndEveryName) {
  int wakes = 0;
  LiveInbox inbox([&] { wakes++; });
  inbox.put(event(LiveEvent::Kind::kHello, "\"h\":1", {"1"}));
  for (int i = 0; i < 10; i++) {
    inbox.put(event(LiveEvent::Kind::kFrame, fmt::format("\"f\":{}", i), {"1", "2", "3", "4"}));
    inbox.put(event(LiveEvent::Kind::kState, fmt::format("\"s\":{}", i), {}));
  }
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(inbox.take().text,
            "event: hello\ndata: {\"names\":[1],\"h\":1}\n\n"
            "event: frame\ndata: {\"names\":[2,3,4],\"f\":7}\n\n"
            "event: frame\ndata: {\"f\":8}\n\n"
            "event: frame\ndata: {\"f\":9}\n\n"
            "event: state\ndata: {\"s\":9}\n\n");
  EXPECT_TRUE(inbox.take().text.empty());
  inbox.put(event(LiveEvent::Kind::kFrame, "\"f\":10", {"1", "2", "3", "4"}));
  EXPECT_EQ(wakes, 2);
  inbox.end();
  inbox.put(event(LiveEvent::Kind::kFrame, "\"f\":11", {}));
  const LiveInbox::Taken last = inbox.take();
  EXPECT_EQ(last.text, "event: frame\ndata: {\"f\":10}\n\n");
  EXPECT_TRUE(last.ended);
}

json object(const LiveEvent& event) {
  return json::parse("{" + event.fields + "}");
}

SchedulerSnapshot many_requests(size_t n) {
  SchedulerSnapshot s;
  for (size_t i = 0; i < n; i++)
    s.requests.push_back({.id = 1'000'000 + i, .rid = std::string(128, '"'), .age_seconds = 12345.678});
  return s;
}

// Ten frames and two states stay below what a viewer may be sent in a second, however much there is.
TEST(LiveComposer, StaysInItsBudgetAndShowsWhatIsNewest) {
  FakeEngine engine;
  LiveComposer composer(engine);
  TraceRing& ring = engine.tracer().ring(trace::kScheduler);
  size_t bytes = 0;
  for (int frame = 0; frame < kLiveFramesPerSecond; frame++) {
    if (frame % (kLiveFramesPerSecond / kLiveStatesPerSecond) == 0) {
      const auto state = composer.state(many_requests(kSnapshotRequests));
      const json shown = object(*state);
      EXPECT_EQ(shown.at("requests").size() + shown.at("requests_left_out").get<size_t>(), kSnapshotRequests);
      bytes += state->fields.size();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const double begin = steady_seconds() - 2e-3;
    for (int i = 0; i < 1000; i++)
      ring.add(trace::kCompose, begin + i * 1e-6, begin + i * 1e-6 + 1e-7, i, 1000, 1000);
    const auto event = composer.frame();
    bytes += event->fields.size();
    const json shown = object(*event);
    const size_t n = shown.at("spans").size();
    EXPECT_EQ(n + shown.at("left_out").get<size_t>(), 1000u);
    EXPECT_GT(n, 50u);
    EXPECT_EQ(shown.at("spans").at(0).at(4), 1000 - n) << "the newest, in order";
    EXPECT_EQ(shown.at("spans").at(n - 1).at(4), 999);
    EXPECT_LT(shown.at("from"), shown.at("to"));
    EXPECT_GE(shown.at("spans").at(0).at(2), -1) << "what is shown did not end before `from`";
  }
  EXPECT_LT(bytes, kLiveBytesPerSecond);
}

TEST(LiveComposer, ASpanSaysOnlyTheNumbersItHas) {
  FakeEngine engine;
  LiveComposer composer(engine);
  const double t = steady_seconds();
  engine.tracer().ring(trace::kScheduler).add(trace::kIdle, t, t + 1e-3);
  engine.tracer().ring(trace::kScheduler).add(trace::kWait, t, t + 1e-3, 7);
  engine.tracer().ring(trace::kForward).add(trace::kPlan, t, t + 1e-3, kNoTraceArg, 3);
  engine.tracer().ring("another").add(trace::kPlan, t, t + 1e-3, 1);
  const auto event = composer.frame();
  const json spans = object(*event).at("spans");
  ASSERT_EQ(spans.size(), 3u);
  for (const json& span : spans) {
    const json name = json::parse(event->names->at(span.at(1)));
    const std::map<std::string, const char*> want = {{"idle", "[]"}, {"wait", "[7]"}, {"plan", "[null,3]"}};
    EXPECT_EQ(json(std::vector<json>(span.begin() + 4, span.end())), json::parse(want.at(name.at("text"))));
  }
  EXPECT_EQ(composer.frame()->names->size(), 3u);
}

TEST(LiveComposer, LostSpansEndAStretchOfSteps) {
  FakeEngine engine;  // rings of 1024
  LiveComposer composer(engine);
  TraceRing& device = engine.tracer().ring(trace::kDevice);
  device.add(trace::kDecode, 1, 2, 1, 1, 1);
  composer.frame();
  for (int i = 0; i < 1025; i++) device.add(trace::kDecode, 10 + i, 11 + i, 1, 1, 1);
  const json steps = object(*composer.frame()).at("steps");
  EXPECT_EQ(steps.at("n"), 1024);
  EXPECT_EQ(steps.at("gap_us").at("n"), 1023);
  EXPECT_EQ(steps.at("gap_us").at("max"), 0);
}

}  // namespace
}  // namespace gapless::testing
