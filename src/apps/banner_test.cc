#include "apps/banner.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>

#include "apps/answer_queue.h"
#include "apps/signals.h"

namespace gapless {
namespace {

TEST(Banner, WritesSizesForPeople) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(human_bytes(999'999'999), "1.0 GB");
  EXPECT_EQ(human_count(134'515'008), "134.5 M");
  EXPECT_EQ(human_count(42), "42");
}

TEST(StatsLine, SaysNothingWhenIdle) {
  StatsLine line;
  EXPECT_EQ(line.next({}, 5), "");
  SchedulerStats busy{.running = 2, .queued = 1, .kv_used_tokens = 250, .kv_total_tokens = 1000};
  busy.prompt_tokens = 100;
  busy.cached_tokens = 25;
  busy.generation_tokens = 50;
  busy.retractions = 1;
  EXPECT_EQ(line.next(busy, 5),
            "running 2, queued 1, KV 25 % of 1000 tokens, prompt 20 tok/s (25 % cached), generated 10 tok/s, "
            "1 retracted");
  busy.running = busy.queued = 0;  // what happened before the last line is not told twice
  EXPECT_EQ(line.next(busy, 5), "");
}

TEST(StatsLine, TellsOfARequestThatCameAndWentInBetween) {
  StatsLine line;
  SchedulerStats after{.kv_total_tokens = 1000};
  after.steps = 3;
  after.generation_tokens = 2;
  EXPECT_NE(line.next(after, 5), "");
}

TEST(StatsLine, SaysWhenTheSimulatedDeviceIsLate) {
  StatsLine line;
  SchedulerStats now{.running = 1, .kv_total_tokens = 1000};
  EXPECT_EQ(line.next(now, 5, {.steps = 2000, .overruns = 2}).find("late"), std::string::npos);
  // Of the last 1000 steps 30; all in all it would be 1.1 %.
  const std::string text = line.next(now, 5, {.steps = 3000, .overruns = 32});
  EXPECT_NE(text.find(", 3.0 % of the simulated steps were late: this host is too busy for them"),
            std::string::npos)
      << text;
  EXPECT_EQ(line.next(now, 5, {.steps = 3000, .overruns = 32}).find("late"), std::string::npos);
}

TEST(StartBanner, NamesASimulatedDeviceInsteadOfThisMachinesThreads) {
  ServeArgs args;
  args.engine.device = "sim:h100-llama3-8b";
  args.engine.max_total_tokens = 65536;
  const auto engine = Engine::create(engine_options(args.engine).value()).value();
  const std::vector<std::string> lines = start_banner(args, *engine, {"http://127.0.0.1:1"}, false, 0.1);
  EXPECT_LE(lines.size(), 15u);
  std::string text;
  for (const std::string& each : lines) text += each + "\n";
  EXPECT_NE(text.find("device     sim:h100-llama3-8b: a simulation, answers are random words"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("threads"), std::string::npos) << text;
  EXPECT_EQ(text.find("kernels"), std::string::npos) << text;
}

TEST(StartBanner, SaysThatOperationsAreMeasured) {
  ServeArgs args;
  args.engine.device = "sim:zero";
  const auto engine = Engine::create(engine_options(args.engine).value()).value();
  const auto tells = [&] {
    const std::vector<std::string> lines = start_banner(args, *engine, {"http://127.0.0.1:1"}, false, 0.1);
    return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("profile    every operation is measured") != std::string::npos;
    });
  };
  EXPECT_FALSE(tells());
  args.profile = true;
  EXPECT_TRUE(tells());
}

TEST(EndSummary, HasNoShareOfNothing) {
  EXPECT_EQ(end_summary({}, 0),
            "0 HTTP requests, 0 prompt tokens (0 % cached), 0 generated, peak KV 0 of 0 tokens");
}

TEST(Signals, AreTakenOneByOne) {
  Signals signals;
  EXPECT_EQ(signals.take(), 0);
  EXPECT_FALSE(signals.wait(-1, std::chrono::milliseconds(0)));
  raise(SIGTERM);
  EXPECT_TRUE(signals.wait(-1, std::chrono::milliseconds(1000)));
  EXPECT_EQ(signals.take(), SIGTERM);
  EXPECT_EQ(signals.take(), 0);
}

TEST(Signals, ADescriptorEndsTheWaitToo) {
  Signals signals;
  const int fd = eventfd(1, 0);
  EXPECT_FALSE(signals.wait(fd, std::chrono::milliseconds(10'000)));
  close(fd);
}

TEST(AnswerQueue, GivesEventsInOrderAndOnce) {
  AnswerQueue queue;
  EXPECT_TRUE(queue.take().empty());
  ChoiceDelta delta;
  delta.text = "a";
  queue.on_event(delta);
  queue.on_event(Done{});
  const std::deque<ResponseEvent> events = queue.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<ChoiceDelta>(events[0]).text, "a");
  EXPECT_TRUE(std::holds_alternative<Done>(events[1]));
  EXPECT_TRUE(queue.take().empty());
}

}  // namespace
}  // namespace gapless
