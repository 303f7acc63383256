// The worker on the CPU device, launched by the caller's thread.
#include <gtest/gtest.h>

#include "sampling/testing/oracle.h"
#include "worker/testing/driver.h"

namespace gapless {
namespace {

using namespace testing;

class WorkerTest : public WorkerFixture {
 protected:
  void SetUp() override {
    WorkerFixture::SetUp();
    worker_ = std::make_unique<ModelWorker>(*runner_);
  }
  PendingForward launch(ModelWorkerBatch b) { return WorkerFixture::launch(*worker_, std::move(b)); }
  std::unique_ptr<ModelWorker> worker_;
};

TEST_F(WorkerTest, PrefillThenDecodeReadsThroughThePageTable) {
  const std::vector<int32_t> prompt{5, 6, 8, 9, 10};
  const int32_t first = launch(prefill(3, prompt, 11)).take().rows[0].token;
  EXPECT_EQ(first, next_token(prompt));
  const RowResult second = launch(decode(3, first, 5, 1)).take().rows[0];
  EXPECT_EQ(second.token, next_token({5, 6, 8, 9, 10, first}));
}

TEST_F(WorkerTest, APlaceholderIsTheTokenOfTheLaunchBefore) {
  const std::vector<int32_t> prompt{5, 6, 8};
  PendingForward a = launch(prefill(2, prompt, 5));
  PendingForward b =
      launch(decode(2, placeholder(2), 3, 1));  // launched before the result of the first was looked at
  const int32_t first = std::move(a).take().rows[0].token;
  EXPECT_EQ(std::move(b).take().rows[0].token, next_token({5, 6, 8, first}));
}

TEST_F(WorkerTest, TakeDropsARowWhoseRequestEndedByItsLastToken) {
  PendingForward a = launch(prefill(2, {5, 6}, 5, greedy(/*max_tokens=*/1)));
  PendingForward b = launch(decode(2, placeholder(2), 2, 1));
  EXPECT_EQ(std::move(a).take().rows[0].status, RowStatus::kOk);
  EXPECT_EQ(std::move(b).take().rows[0].status, RowStatus::kDropped);
}

TEST_F(WorkerTest, AFailedStepFailsItsRowsAndTheRowsThatReadThem) {
  model_.fail_next = true;
  PendingForward a = launch(prefill(2, {5, 6}, 5));
  ModelWorkerBatch mixed = join(decode(2, placeholder(2), 2, 1), prefill(4, {9, 9, 9}, 20));
  PendingForward b = launch(std::move(mixed));
  const BatchResult failed = std::move(a).take();
  EXPECT_FALSE(failed.status.is_ok());
  EXPECT_EQ(failed.rows[0].status, RowStatus::kFailed);
  const BatchResult next = std::move(b).take();
  EXPECT_TRUE(next.status.is_ok()) << next.status.message();
  EXPECT_EQ(next.rows[0].status, RowStatus::kFailed);    // it depended on the failed step
  EXPECT_EQ(next.rows[1].token, next_token({9, 9, 9}));  // its neighbour did not
}

TEST_F(WorkerTest, PromptLogprobsComeInGroupsLargerThanTheLogitBuffer) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 100; i++) prompt.push_back(20 + i);
  SamplingParams params = greedy();
  params.top_logprobs = 1;
  ModelWorkerBatch b = prefill(1, prompt, 1, params);
  for (int32_t i = 4; i < 25; i++) b.page_writes.push_back({1, i, 1 + i});
  b.rows[0].prompt_logprob_begin = 0;
  b.rows[0].n_targets = 99;
  b.prompt_targets.assign(prompt.begin() + 1, prompt.end());
  const RowResult r = launch(std::move(b)).take().rows[0];
  ASSERT_EQ(r.prompt_top.size(), 99u);
  for (int32_t i = 0; i < 99; i++) {
    ASSERT_EQ(r.prompt_top[i].size(), 1u);
    EXPECT_EQ(r.prompt_top[i][0].id, next_token({prompt.begin(), prompt.begin() + i + 1}));
    if (prompt[i + 1] != r.prompt_top[i][0].id) {
      EXPECT_LT(r.prompt_logprobs[i], r.prompt_top[i][0].logprob);
    }
  }
  EXPECT_EQ(r.token, next_token(prompt));
}

TEST_F(WorkerTest, AReusedSlotStartsAfresh) {
  const int32_t first = launch(prefill(2, {5, 6}, 5)).take().rows[0].token;
  SamplingParams ban = greedy();
  ban.logit_bias = {{first, -100.f}};
  EXPECT_NE(launch(prefill(2, {5, 6}, 9, ban)).take().rows[0].token, first);
  EXPECT_EQ(launch(prefill(2, {5, 6}, 5)).take().rows[0].token, first);
}

TEST_F(WorkerTest, ReusingARingPlaceBeforeItsResultWasTakenIsABug) {
  PendingForward a = launch(prefill(1, {5, 6}, 1));
  PendingForward b = launch(prefill(2, {5, 6}, 5));
  EXPECT_DEATH((void)launch(prefill(3, {5, 6}, 9)), "was not taken");
  (void)std::move(a).take();
  (void)std::move(b).take();
}

TEST(ModelWorkerBatch, RoundTripsThroughBytes) {
  ModelWorkerBatch b{.id = 9,
                     .mode = ForwardMode::kMixed,
                     .rows = {{.slot = 3, .epoch = 2, .n_tokens = 2, .start_pos = 4, .emits = true}},
                     .input_ids = {1, placeholder(3)},
                     .prompt_targets = {4},
                     .page_writes = {{1, 2, 3}},
                     .slot_inits = {}};
  SlotInit init{.slot = 3, .epoch = 4, .params = {}, .prompt_ids = {1, 2}, .output_ids = {3}};
  init.params.logit_bias = {{5, -1.5f}};
  init.params.stop_token_ids = {6, 7};
  init.params.seed = 77;
  b.slot_inits.push_back(init);
  EXPECT_EQ(from_bytes(to_bytes(b)), b);
}

}  // namespace
}  // namespace gapless
