#include "engine/watchdog.h"

#include <gtest/gtest.h>

namespace gapless {
namespace {

using std::chrono::seconds;

SchedulerStats with_work(int64_t steps) {
  SchedulerStats s;
  s.running = 2;
  s.steps = steps;
  return s;
}

// A dead engine behind a healthy port: not ready once there is work and nothing has moved for a minute.
TEST(KnownFailures, A_HC_1_WorkWithoutStepsIsNotReady) {
  Watchdog dog;
  const Clock::time_point t0{};
  EXPECT_TRUE(dog.check(with_work(5), t0).is_ok());
  EXPECT_TRUE(dog.check(with_work(5), t0 + seconds(59)).is_ok());
  const Status stuck = dog.check(with_work(5), t0 + seconds(61));
  EXPECT_EQ(stuck.code(), StatusCode::kUnavailable);
  EXPECT_NE(stuck.message().find("61 seconds"), std::string::npos) << stuck.message();
  EXPECT_TRUE(dog.check(with_work(6), t0 + seconds(62)).is_ok());  // it moves again
}

TEST(Watchdog, IdleTimeDoesNotCount) {
  Watchdog dog;
  const Clock::time_point t0{};
  EXPECT_TRUE(dog.check({}, t0).is_ok());
  EXPECT_TRUE(dog.check({}, t0 + seconds(1000)).is_ok());
  EXPECT_TRUE(dog.check(with_work(0), t0 + seconds(1001)).is_ok());
  EXPECT_FALSE(dog.check(with_work(0), t0 + seconds(1062)).is_ok());
}

}  // namespace
}  // namespace gapless
