#include "base/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/trace_names.h"

namespace gapless {
namespace {

constexpr TraceName kWork{"work", {"batch", "rows"}};
constexpr TraceName kOdd{"say \"a\\b\"\n", {"x"}};

TEST(TraceRing, KeepsTheLastSpansInOrder) {
  TraceRing ring("r", 5);  // rounded up to 8
  EXPECT_TRUE(ring.read().empty());
  for (int i = 0; i < 20; i++) ring.add(kWork, i, i + 0.5, i, 2 * i, 3 * i);
  const std::vector<TraceRecord> spans = ring.read();
  ASSERT_EQ(spans.size(), 8u);
  for (int i = 0; i < 8; i++) {
    EXPECT_EQ(spans[i].name, &kWork);
    EXPECT_EQ(spans[i].begin, 12 + i);
    EXPECT_EQ(spans[i].end, 12.5 + i);
    EXPECT_EQ(spans[i].args[0], 12 + i);
    EXPECT_EQ(spans[i].args[1], 2 * (12 + i));
    EXPECT_EQ(spans[i].args[2], 3 * (12 + i));
  }
  EXPECT_EQ(ring.overwritten(), 12u);
  EXPECT_EQ(ring.read(18.5).size(), 2u);  // the span that ends then counts
}

// A reader beside a writer that wraps around all the time gets whole spans only, in order.
TEST(TraceRing, AReaderNeverSeesHalfASpan) {
  TraceRing ring("r", 16);
  constexpr int64_t kSpans = 400'000;
  std::atomic<bool> reading{false};
  std::thread writer([&] {
    while (!reading) std::this_thread::yield();
    for (int64_t i = 1; i <= kSpans; i++)
      ring.add(i % 2 ? kWork : kOdd, double(i), double(2 * i), i, -i, 7 * i);
  });
  int64_t seen = 0, newest = 0;
  while (newest < kSpans) {
    int64_t previous = 0;
    for (const TraceRecord& span : ring.read()) {
      const int64_t i = span.args[0];
      ASSERT_GT(i, previous);
      ASSERT_EQ(span.name, i % 2 ? &kWork : &kOdd);
      ASSERT_EQ(span.begin, double(i));
      ASSERT_EQ(span.end, double(2 * i));
      ASSERT_EQ(span.args[1], -i);
      ASSERT_EQ(span.args[2], 7 * i);
      previous = i;
      seen++;
    }
    newest = std::max(newest, previous);
    reading = true;
  }
  writer.join();
  EXPECT_GE(seen, 16);
}

std::vector<int64_t> first_args(const std::vector<TraceRecord>& spans) {
  std::vector<int64_t> args;
  for (const TraceRecord& span : spans) args.push_back(span.args[0]);
  return args;
}

TEST(TraceRing, AReaderThatComesAgainGetsWhatIsNew) {
  TraceRing ring("r", 4);
  uint64_t cursor = 0;
  std::vector<TraceRecord> spans;
  EXPECT_EQ(ring.read_new(cursor, spans), 0u);
  for (int i = 0; i < 3; i++) ring.add(kWork, i, i, i);
  EXPECT_EQ(ring.read_new(cursor, spans), 0u);
  EXPECT_EQ(first_args(spans), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(ring.read_new(cursor, spans), 0u);
  EXPECT_EQ(spans.size(), 3u);
  for (int i = 3; i < 10; i++) ring.add(kWork, i, i, i);  // 3, 4 and 5 are overwritten
  spans.clear();
  EXPECT_EQ(ring.read_new(cursor, spans), 3u);
  EXPECT_EQ(first_args(spans), (std::vector<int64_t>{6, 7, 8, 9}));
  EXPECT_EQ(cursor, ring.written());

  cursor = ring.written();  // from now on
  ring.add(kWork, 10, 10, 10);
  spans.clear();
  EXPECT_EQ(ring.read_new(cursor, spans), 0u);
  EXPECT_EQ(first_args(spans), (std::vector<int64_t>{10}));
}

// Beside a writer that goes round the ring: whole spans, each once, in order, and every other one is counted.
TEST(TraceRing, EverySpanIsReadOrCountedAsLost) {
  TraceRing ring("r", 64);
  constexpr int64_t kSpans = 300'000;
  std::thread writer([&] {
    for (int64_t i = 0; i < kSpans; i++) ring.add(kWork, double(i), double(2 * i), i, -i, 7 * i);
  });
  uint64_t cursor = 0, read = 0;
  int64_t next = 0;
  while (cursor < uint64_t(kSpans)) {
    const uint64_t before = cursor;
    std::vector<TraceRecord> spans;
    const uint64_t lost = ring.read_new(cursor, spans);
    ASSERT_EQ(lost + spans.size(), cursor - before);
    read += spans.size();
    for (const TraceRecord& span : spans) {
      const int64_t i = span.args[0];
      ASSERT_GE(i, next);
      ASSERT_LT(i, int64_t(cursor));
      ASSERT_EQ(span.begin, double(i));
      ASSERT_EQ(span.end, double(2 * i));
      ASSERT_EQ(span.args[1], -i);
      ASSERT_EQ(span.args[2], 7 * i);
      next = i + 1;
    }
  }
  writer.join();
  EXPECT_EQ(cursor, ring.written());
  EXPECT_GE(read, 1u);
}

TEST(TraceSpan, EndsOnceAndSaysHowLongItWas) {
  TraceRing ring("r", 8);
  const double before = steady_seconds();
  double seconds = 0;
  {
    TraceSpan scope(ring, kWork);
    scope.set_args(3, 4);
    TraceSpan ended(ring, kOdd);
    seconds = ended.end();
    TraceSpan dropped(ring, kOdd);
    dropped.drop();
  }
  const std::vector<TraceRecord> spans = ring.read();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, &kOdd);
  EXPECT_EQ(spans[0].args[0], kNoTraceArg);
  EXPECT_EQ(seconds, spans[0].end - spans[0].begin);
  EXPECT_EQ(spans[1].name, &kWork);
  EXPECT_EQ(spans[1].args[0], 3);
  EXPECT_EQ(spans[1].args[1], 4);
  EXPECT_EQ(spans[1].args[2], kNoTraceArg);
  EXPECT_LE(before, spans[1].begin);
  EXPECT_LE(spans[1].begin, spans[0].begin);
  EXPECT_LE(spans[0].end, spans[1].end);
}

TEST(Tracer, GivesTheSameRingForTheSameName) {
  Tracer tracer(8), other(8);
  TraceRing& a = tracer.ring("a");
  EXPECT_EQ(&a, &tracer.ring("a"));
  EXPECT_NE(&a, &tracer.ring("b"));
  EXPECT_NE(&a, &other.ring("a"));
  EXPECT_EQ(a.name(), "a");
}

nlohmann::json events_of(const Tracer& tracer, const std::string& phase, double since = 0) {
  const nlohmann::json file = nlohmann::json::parse(tracer.chrome_json(since));
  nlohmann::json events = nlohmann::json::array();
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == phase) events.push_back(event);
  return events;
}

TEST(Tracer, WritesChromesFormat) {
  Tracer tracer(4);
  EXPECT_EQ(events_of(tracer, "X").size(), 0u);
  const double t = steady_seconds();
  for (int i = 0; i < 6; i++) tracer.ring("extra \"1\"").add(kOdd, t, t + 1, i);
  tracer.ring(trace::kDevice).add(trace::kDecode, t + 0.001, t + 0.0035, 7, 256, 300);
  tracer.ring(trace::kScheduler).add(trace::kIdle, t, t + 0.5);

  std::vector<std::string> threads;
  const nlohmann::json metadata = events_of(tracer, "M");
  for (const auto& event : metadata)
    if (event.at("name") == "thread_name") threads.push_back(event.at("args").at("name"));
  EXPECT_EQ(threads, (std::vector<std::string>{"scheduler", "device", "extra \"1\""}));

  const nlohmann::json spans = events_of(tracer, "X");
  ASSERT_EQ(spans.size(), 6u);
  EXPECT_EQ(spans[0].at("name"), "idle");
  EXPECT_FALSE(spans[0].contains("args"));
  EXPECT_EQ(spans[1].at("name"), "decode");
  EXPECT_EQ(spans[1].at("args"), (nlohmann::json{{"batch", 7}, {"rows", 256}, {"tokens", 300}}));
  EXPECT_NEAR(spans[1].at("dur").get<double>(), 2500, 0.002);  // microseconds
  EXPECT_NEAR(spans[1].at("ts").get<double>() - spans[0].at("ts").get<double>(), 1000, 0.002);
  EXPECT_NE(spans[0].at("tid"), spans[1].at("tid"));
  EXPECT_EQ(spans[2].at("name"), "say \"a\\b\"\n");
  EXPECT_EQ(spans[2].at("args").at("x"), 2);  // 0 and 1 were overwritten

  EXPECT_EQ(events_of(tracer, "X", t + 0.7).size(), 4u);  // only what ended later
}

}  // namespace
}  // namespace gapless
