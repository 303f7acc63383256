// The overlap worker: a thread that launches, or a test that drives it step by step; recall; failures.
#include "worker/overlap_worker.h"

#include <gtest/gtest.h>

#include "worker/testing/driver.h"

namespace gapless {
namespace {

using namespace testing;

class OverlapWorkerTest : public WorkerFixture {
 protected:
  void SetUp() override {
    WorkerFixture::SetUp();
    worker_ = std::make_unique<OverlapWorker>(*runner_, trace_);
  }
  PendingForward launch(ModelWorkerBatch b) { return WorkerFixture::launch(*worker_, std::move(b)); }
  int32_t answer(ModelWorkerBatch b) { return launch(std::move(b)).take().rows[0].token; }
  // A step that the device stays in until the gate is opened; taken already.
  PendingForward launch_gated(ModelWorkerBatch b, Gate& gate) {
    model_.gate_next = &gate;
    PendingForward ticket = launch(std::move(b));
    gate.wait_until_entered();
    return ticket;
  }
  std::unique_ptr<OverlapWorker> worker_;
};

// --- recall ---

TEST_F(OverlapWorkerTest, ALaunchThatNobodySawYetIsRecalledForNothing) {
  PendingForward a = launch(prefill(1, {5, 6}, 1));
  EXPECT_TRUE(a.try_recall());
  PendingForward b = launch(prefill(2, {5, 8}, 5));
  EXPECT_TRUE(worker_->forward_one());
  EXPECT_TRUE(worker_->forward_one());
  EXPECT_FALSE(worker_->forward_one());
  EXPECT_EQ(std::move(b).take().rows[0].token, next_token({5, 8}));
  EXPECT_EQ(model_.kv(1, 0), 0) << "the recalled launch wrote KV";
}

// Queued behind a running step, taken back, and launched again with a newcomer: in the recalled one's ring
// place, with every slot_init again.
TEST_F(OverlapWorkerTest, ALaunchBehindARunningStepIsRecalledAndLaunchedAgain) {
  worker_->start();
  const int32_t first = answer(prefill(1, {5, 6, 7}, 1));
  for (int round = 0; round < 20; round++) {
    Gate gate;
    PendingForward a = launch_gated(decode(1, first, 3 + round, 1 + round), gate);
    ModelWorkerBatch behind = prefill(2, {9, 10, round}, 9, greedy(), uint32_t(100 + round));
    PendingForward b = launch(behind);
    if (round % 2) std::this_thread::sleep_for(std::chrono::microseconds(200));  // or not queued yet
    ASSERT_TRUE(b.try_recall());
    behind = join(behind, prefill(3, {20, round}, 17, greedy(), uint32_t(100 + round)));
    behind.id = ++id_;
    PendingForward again = launch(behind);
    ASSERT_FALSE(again.launch_done().ready());
    gate.open = true;
    (void)std::move(a).take();
    const BatchResult result = std::move(again).take();
    EXPECT_EQ(result.batch_id, behind.id);
    EXPECT_EQ(result.rows[0].token, next_token({9, 10, round}));
    EXPECT_EQ(result.rows[1].token, next_token({20, round}));
  }
}

TEST_F(OverlapWorkerTest, ARunningStepCannotBeRecalled) {
  worker_->start();
  Gate gate;
  PendingForward a = launch_gated(prefill(1, {5, 6}, 1), gate);
  EXPECT_TRUE(a.launch_done().ready());
  EXPECT_FALSE(a.try_recall());
  gate.open = true;
  EXPECT_EQ(std::move(a).take().rows[0].token, next_token({5, 6}));
}

// Every row of the former owner of a slot must see what it had, although its successor was launched and
// recalled.
TEST_F(OverlapWorkerTest, ARecalledAdmissionLeavesTheSlotAsItWas) {
  worker_->start();
  const int32_t first = answer(prefill(1, {5, 6}, 1));
  Gate gate;
  PendingForward running = launch_gated(prefill(2, {8}, 9), gate);
  PendingForward admission = launch(prefill(1, {11, 12, 13}, 20, greedy(), 2));
  ASSERT_TRUE(admission.try_recall());
  PendingForward next = launch(decode(1, first, 2, 1));
  gate.open = true;
  (void)std::move(running).take();
  EXPECT_EQ(std::move(next).take().rows[0].token, next_token({5, 6, first}));
}

// --- results and ends ---

// The results of one launch stay as they are while the next one runs, and the next one's while the place of
// the first is used again.
TEST_F(OverlapWorkerTest, ResultsOfTwoLaunchesDoNotTouchEachOther) {
  worker_->start();
  Gate gate_b, gate_c;
  PendingForward a = launch(prefill(1, {5, 6}, 1));
  (void)a.copy_done().wait();
  PendingForward b = launch_gated(prefill(2, {7, 8, 9}, 5), gate_b);
  EXPECT_FALSE(b.copy_done().ready());
  EXPECT_EQ(std::move(a).take().rows[0].token, next_token({5, 6}));
  model_.gate_next = &gate_c;
  PendingForward c = launch(prefill(3, {4}, 9));
  gate_b.open = true;
  gate_c.wait_until_entered();  // c has overwritten what a left
  EXPECT_TRUE(b.copy_done().ready());
  EXPECT_FALSE(c.copy_done().ready());
  EXPECT_EQ(std::move(b).take().rows[0].token, next_token({7, 8, 9}));
  gate_c.open = true;
  EXPECT_EQ(std::move(c).take().rows[0].token, next_token({4}));
}

TEST_F(OverlapWorkerTest, TheEndLaunchesWhatIsQueued) {
  worker_->start();
  Gate gate;
  PendingForward a = launch_gated(prefill(1, {5, 6}, 1), gate);
  PendingForward b = launch(decode(1, placeholder(1), 2, 1));
  worker_.reset();  // joins, although the device has not finished the first
  EXPECT_FALSE(a.copy_done().ready());
  gate.open = true;
  const int32_t first = std::move(a).take().rows[0].token;
  EXPECT_EQ(std::move(b).take().rows[0].token, next_token({5, 6, first}));
}

TEST_F(OverlapWorkerTest, AThirdLaunchBeforeAResultWasTakenIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PendingForward a = launch(prefill(1, {5, 6}, 1));
  PendingForward b = launch(prefill(2, {5, 6}, 5));
  const auto third = [&] {
    PendingForward c = launch(prefill(3, {5, 6}, 9));
    while (worker_->forward_one()) {
    }
  };
  EXPECT_DEATH(third(), "was not taken");
  while (worker_->forward_one()) {
  }
  (void)std::move(a).take();
  (void)std::move(b).take();
}

TEST_F(OverlapWorkerTest, ATicketThatIsForgottenIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH({ PendingForward a = launch(prefill(1, {5, 6}, 1)); }, "was never taken");
}

// --- failures ---

TEST_F(OverlapWorkerTest, AFailedChunkFailsTheNextOneAndNobodyElse) {
  worker_->start();
  const int32_t other = answer(prefill(4, {30, 31}, 20));
  model_.fail_next = true;
  ModelWorkerBatch chunk = prefill(1, {5, 6, 7}, 1);
  chunk.rows[0].emits = false;
  PendingForward a = launch(chunk);
  ModelWorkerBatch next = decode(1, 8, 3, 0);
  PendingForward b = launch(join(next, decode(4, other, 2, 1)));
  EXPECT_EQ(std::move(a).take().rows[0].status, RowStatus::kFailed);
  const BatchResult result = std::move(b).take();
  EXPECT_TRUE(result.status.is_ok());
  EXPECT_EQ(result.rows[0].status, RowStatus::kFailed);
  EXPECT_EQ(result.rows[1].token, next_token({30, 31, other}));
  // The same slot is admitted again and knows nothing of it.
  EXPECT_EQ(answer(prefill(1, {5, 6, 7, 8}, 1, greedy(), 2)), next_token({5, 6, 7, 8}));
}

// A decode row whose input the host knows: nothing but the KV in between tells that a step failed.
TEST_F(OverlapWorkerTest, ARowBehindAFailedDecodeStepFailsThoughItsInputIsKnown) {
  worker_->start();
  const int32_t first = answer(prefill(1, {5, 6}, 1));
  model_.fail_next = true;
  PendingForward a = launch(decode(1, first, 2, 1));
  PendingForward b = launch(decode(1, 77, 3, 2));
  EXPECT_FALSE(std::move(a).take().status.is_ok());
  EXPECT_EQ(std::move(b).take().rows[0].status, RowStatus::kFailed);
}

// The admission was never taken: the next chunk meets the slot's former owner, and must not write to its
// pages, which somebody else may have by now.
TEST_F(OverlapWorkerTest, AChunkOfARequestThatWasNotAdmittedTouchesNoPage) {
  worker_->start();
  (void)answer(prefill(1, {5, 6, 7}, 1));
  PendingForward second_chunk = launch(decode(1, 99, 3, 0, /*epoch=*/2));
  EXPECT_EQ(std::move(second_chunk).take().rows[0].status, RowStatus::kFailed);
  EXPECT_EQ(model_.kv(1, 3), 0);
  const int32_t token = next_token({5, 6, 7});
  EXPECT_EQ(answer(decode(1, token, 3, 1)), next_token({5, 6, 7, token})) << "the former owner is well";
}

// The first group of rows has its tokens and its map entries when the second group fails: none of them
// counts.
TEST_F(OverlapWorkerTest, AStepThatFailsInTheMiddleOfSamplingFailsAsAWhole) {
  worker_->start();
  const std::vector<int32_t> prompt(100, 20);
  ModelWorkerBatch b = join(prefill(1, {5, 6}, 1), prefill(2, prompt, 9));
  for (int32_t i = 4; i < 25; i++) b.page_writes.push_back({2, i, 9 + i});
  b.rows[1].prompt_logprob_begin = 0;
  b.rows[1].n_targets = 99;
  b.prompt_targets.assign(99, 20);
  model_.fail_in_group(2);
  PendingForward a = launch(b);
  PendingForward next = launch(decode(1, placeholder(1), 2, 1));
  EXPECT_FALSE(std::move(a).take().status.is_ok());
  EXPECT_EQ(std::move(next).take().rows[0].status, RowStatus::kFailed);
  EXPECT_EQ(answer(prefill(1, {5, 6}, 1, greedy(), 2)), next_token({5, 6}));
}

}  // namespace
}  // namespace gapless
