#include "device/op_profile.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"

namespace gapless {
namespace {

struct SleepParams {
  int ms;
  double bytes;
};
int32_t two_chunks(const SleepParams&) {
  return 2;
}
void sleep_run(const SleepParams& p, int32_t chunk, OpContext&) {
  if (chunk == 0) std::this_thread::sleep_for(std::chrono::milliseconds(p.ms));
}
OpWork sleep_work(const SleepParams& p) {
  return {.bytes = p.bytes, .flops = 2, .int8_ops = 3};
}

class OpProfileTest : public ::testing::Test {
 protected:
  void run_step(int32_t kind, int64_t rows) {
    auto ops = stream->new_ops();
    ops->tag = {kind, rows};
    ops->push<two_chunks, sleep_run, sleep_work>("sleep", SleepParams{2, 100}, first_label);
    ops->push<two_chunks, sleep_run, sleep_work>("sleep", SleepParams{10, 10}, "long");
    ops->push<two_chunks, sleep_run>("no work", SleepParams{0, 0});
    ops->push<two_chunks, sleep_run, sleep_work>("sleep", SleepParams{2, 1}, second_label);
    event = stream->submit(std::move(ops));
    ASSERT_TRUE(event->wait().is_ok());
  }

  const char first_label[6] = "short", second_label[6] = "short";  // one text at two addresses
  OpProfile profile;
  CpuDevice device{2};
  std::unique_ptr<Stream> stream = device.create_stream();
  std::shared_ptr<Event> event;
};

TEST_F(OpProfileTest, AddsUpByKindAndLabel) {
  ASSERT_TRUE(stream->set_profile(&profile));
  double seconds = 0;
  for (int i = 0; i < 3; i++) {
    run_step(1, 4);
    seconds += event->times().ended - event->times().started;
  }
  run_step(0, 7);
  const std::vector<StepTotals> totals = profile.totals();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].kind, 0);
  EXPECT_EQ(totals[0].rows, 7);
  const StepTotals& steps = totals[1];
  EXPECT_EQ(steps.steps, 3);
  EXPECT_EQ(steps.rows, 12);
  EXPECT_DOUBLE_EQ(steps.seconds, seconds);
  ASSERT_EQ(steps.ops.size(), 3u);
  EXPECT_EQ(steps.ops[0].label, "short");
  EXPECT_EQ(steps.ops[0].calls, 6);
  EXPECT_EQ(steps.ops[0].work.bytes, 303);
  EXPECT_EQ(steps.ops[0].work.flops, 12);
  EXPECT_EQ(steps.ops[0].work.int8_ops, 18);
  EXPECT_EQ(steps.ops[1].label, "long");
  EXPECT_EQ(steps.ops[2].label, "no work");
  EXPECT_EQ(steps.ops[2].work.bytes, 0);
  EXPECT_GE(steps.ops[0].seconds, 6 * 2e-3);
  EXPECT_GE(steps.ops[1].seconds, 3 * 10e-3);
  double sum = 0;
  for (const OpTotals& op : steps.ops) sum += op.seconds;
  EXPECT_NEAR(sum, steps.seconds, 1e-9);  // nothing of a step is nobody's
}

TEST_F(OpProfileTest, OnlyWhenItIsSet) {
  run_step(0, 1);
  EXPECT_TRUE(profile.totals().empty());
  stream->set_profile(&profile);
  run_step(0, 1);
  stream->set_profile(nullptr);
  stream->synchronize();
  run_step(0, 1);
  ASSERT_EQ(profile.totals().size(), 1u);
  EXPECT_EQ(profile.totals()[0].steps, 1);
  profile.reset();
  EXPECT_TRUE(profile.totals().empty());
}

TEST_F(OpProfileTest, CopiesReadAndWrite) {
  ASSERT_TRUE(stream->set_profile(&profile));
  const std::vector<char> from(1000, 'x');
  std::vector<char> to(1000);
  auto ops = stream->new_ops();
  device.push_copy(*ops, to.data(), from.data(), from.size());
  ASSERT_TRUE(stream->submit(std::move(ops))->wait().is_ok());
  stream->synchronize();
  ASSERT_EQ(profile.totals().size(), 1u);
  ASSERT_EQ(profile.totals()[0].ops.size(), 1u);
  EXPECT_EQ(profile.totals()[0].ops[0].work.bytes, 2000);
  EXPECT_EQ(to, from);
}

TEST_F(OpProfileTest, TimeBeforeAResetIsNoGap) {
  ASSERT_TRUE(stream->set_profile(&profile));
  run_step(0, 1);
  stream->synchronize();
  profile.reset();
  run_step(0, 1);
  stream->synchronize();
  ASSERT_EQ(profile.totals().size(), 1u);
  EXPECT_EQ(profile.totals()[0].gaps, 0);
}

// Whoever reads or switches while steps run sees whole steps: for the thread sanitizer, too.
TEST_F(OpProfileTest, IsReadAndSwitchedWhileStepsRun) {
  ASSERT_TRUE(stream->set_profile(&profile));
  std::atomic<bool> done{false};
  std::thread reader([&] {
    for (bool on = false; !done; on = !on) {
      for (const StepTotals& steps : profile.totals())
        for (const OpTotals& op : steps.ops) EXPECT_EQ(op.calls % steps.steps, 0) << op.label;
      stream->set_profile(on ? &profile : nullptr);
    }
  });
  for (int i = 0; i < 20; i++) run_step(0, 1);
  done = true;
  reader.join();
  stream->set_profile(nullptr);
  stream->synchronize();
}

}  // namespace
}  // namespace gapless
