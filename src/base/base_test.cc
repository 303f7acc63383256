#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/log.h"
#include "base/metrics.h"
#include "base/process_metrics.h"
#include "base/queue.h"
#include "base/status.h"
#include "base/testing/idle.h"
#include "base/thread.h"

namespace gapless {
namespace {

TEST(Queue, HandsOverInOrderAndEndsWhenClosed) {
  Queue<int> q(2);
  EXPECT_TRUE(q.try_push(1));
  EXPECT_TRUE(q.try_push(2));
  EXPECT_FALSE(q.try_push(3));
  EXPECT_EQ(q.pop(), 1);
  q.close();
  EXPECT_FALSE(q.try_push(4));
  EXPECT_EQ(q.pop(), 2);
  EXPECT_EQ(q.pop(), std::nullopt);
}

TEST(Queue, WakesAWaitingConsumer) {
  Queue<int> q;
  NamedThread consumer("consumer", [&] { EXPECT_EQ(q.pop(), 7); });
  q.try_push(7);
}

TEST(Status, CarriesFieldAndCode) {
  Status s =
      Status::invalid("max_tokens {} > limit {}", 9, 8).with_param("max_tokens").with_error_code("too_big");
  EXPECT_FALSE(s.is_ok());
  EXPECT_EQ(s.message(), "max_tokens 9 > limit 8");
  EXPECT_EQ(s.param(), "max_tokens");
  Result<int> r = s;
  EXPECT_FALSE(r.is_ok());
  EXPECT_EQ(Result<int>(3).value(), 3);
}

TEST(Check, EndsTheProcessWithTheValues) {
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3), "1 \\+ 1 == 3: 2 vs 3");
  EXPECT_DEATH(CHECK(false, "pages {}", 4), "pages 4");
}

TEST(Metrics, PrometheusText) {
  MetricsRegistry m;
  m.counter("a_total", "As.", "k=\"x\"").add(2);
  m.counter("a_total", "As.", "k=\"y\"").add(3);
  Histogram& h = m.histogram("h_seconds", "Hs.", {1, 2});
  h.observe(1);
  h.observe(5);
  double elsewhere = 4;
  m.counter_read_from("b_total", "Bs.", [&] { return elsewhere; });
  elsewhere = 7;
  EXPECT_EQ(
      m.prometheus_text(),
      "# HELP a_total As.\n# TYPE a_total counter\na_total{k=\"x\"} 2\na_total{k=\"y\"} 3\n"
      "# HELP b_total Bs.\n# TYPE b_total counter\nb_total 7\n"
      "# HELP h_seconds Hs.\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"1\"} 1\n"
      "h_seconds_bucket{le=\"2\"} 1\nh_seconds_bucket{le=\"+Inf\"} 2\nh_seconds_sum 6\nh_seconds_count 2\n");
}

TEST(ProcessMetrics, SayWhatTheProcessUses) {
  const auto value_of = [](const std::string& name) {
    const std::string text = process_metrics_text(), line = "\n" + name + " ";
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << name << text;
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + line.size()));
  };
  const double open = value_of("process_open_fds");
  const int one_more = ::dup(0);
  EXPECT_EQ(value_of("process_open_fds"), open + 1);
  ::close(one_more);
  EXPECT_EQ(value_of("process_open_fds"), open);
  EXPECT_GE(value_of("process_max_fds"), open);
  const double resident = value_of("process_resident_memory_bytes");
  const std::vector<char> touched(64 << 20, 1);
  EXPECT_GT(value_of("process_resident_memory_bytes"), resident + double(touched.size()) / 2);
  EXPECT_GT(value_of("process_cpu_seconds_total"), 0);
  const double now = double(std::time(nullptr)), started = value_of("process_start_time_seconds");
  EXPECT_LE(started, now + 1);
  EXPECT_GT(started, now - 3600) << "this test does not take an hour";
}

TEST(Log, MessagesAreEscapedForJson) {
  EXPECT_EQ(json_escaped("a \"b\" c:\\d\n\x01é"), "a \\\"b\\\" c:\\\\d\\u000a\\u0001é");
}

TEST(ThreadRole, BelongsToTheFirstThreadThatAsks) {
  ThreadRole role;
  EXPECT_TRUE(role.is_mine());
  std::thread([&] { EXPECT_FALSE(role.is_mine()); }).join();
}

// Burns CPU in a thread called busy-7 while it lives.
class Busy {
 public:
  ~Busy() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  NamedThread thread_{"busy-7", [this] {
                        while (!stop_) {
                        }
                      }};
};

TEST(ThreadCpu, AThreadThatWorksIsSeenUnderItsName) {
  {
    Busy busy;
    // Until it shows, not for a time: the machine may be busy.
    while (thread_cpu_seconds()["busy"] < 0.01) std::this_thread::yield();
  }
  EXPECT_EQ(thread_cpu_seconds().count("busy"), 0u);
}

TEST(ThreadCpu, AThreadThatSpinsIsNeverAtRest) {
  Busy busy;
  NamedThread asleep("asleep", [] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); });
  EXPECT_GT(testing::cpu_share_at_rest("busy", 0.02, [] {}), 0.02);
  EXPECT_LT(testing::cpu_share_at_rest("asleep", 0.02, [] {}), 0.02);
}

}  // namespace
}  // namespace gapless
