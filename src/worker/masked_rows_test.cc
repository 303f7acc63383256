// Rows that wait for sampling information: the model part runs at once, their sampling when it is there.
#include <gtest/gtest.h>

#include "worker/overlap_worker.h"
#include "worker/testing/worker_fixture.h"

namespace gapless {
namespace {

using namespace testing;

enum class On { kThread, kCaller };

class MaskedRows : public WorkerFixture, public ::testing::WithParamInterface<On> {
 protected:
  void SetUp() override {
    WorkerFixture::SetUp();
    if (GetParam() == On::kThread) {
      auto worker = std::make_unique<OverlapWorker>(*runner_, trace_);
      worker->start();
      worker_ = std::move(worker);
    } else {
      worker_ = std::make_unique<ModelWorker>(*runner_);
    }
  }
  PendingForward launch(ModelWorkerBatch b) { return WorkerFixture::launch(*worker_, std::move(b)); }
  static ModelWorkerBatch masked(ModelWorkerBatch b) {
    b.rows[0].masked = true;
    return b;
  }
  // A free row, then two masked ones.
  ModelWorkerBatch three_rows() {
    return join(join(prefill(1, {5, 6}, 1), masked(prefill(2, {7, 8}, 5))), masked(prefill(3, {9}, 9)));
  }
  static void allow(SamplingInfo& info, std::vector<int32_t> ids) {
    info.rows.push_back(RowMask::kAllowed);
    info.allowed.resize(info.rows.size() * mask_words(kVocab));
    uint32_t* const words = info.allowed.data() + (info.rows.size() - 1) * mask_words(kVocab);
    for (int32_t id : ids) words[id / 32] |= 1u << id % 32;
  }
  static void no_set(SamplingInfo& info, RowMask mask) {
    info.rows.push_back(mask);
    info.allowed.resize(info.rows.size() * mask_words(kVocab));
  }
  static int32_t best_of(std::vector<int32_t> prompt, std::vector<int32_t> ids) {
    const auto logits = hash_logits(prompt);
    return *std::ranges::max_element(ids, {}, [&](int32_t id) { return logits[size_t(id)]; });
  }
  std::unique_ptr<ModelWorkerClient> worker_;
};
INSTANTIATE_TEST_SUITE_P(Workers, MaskedRows, ::testing::Values(On::kThread, On::kCaller),
                         [](const auto& info) { return info.param == On::kThread ? "Overlap" : "Normal"; });

TEST_P(MaskedRows, EmitTheBestOfTheAllowedTokens) {
  PendingForward ticket = launch(three_rows());
  EXPECT_TRUE(ticket.waits_for_sampling_info());
  SamplingInfo info;
  allow(info, {3, 40, 511});
  allow(info, {0, 70, 300, 301});
  ticket.set_sampling_info(info);
  EXPECT_FALSE(ticket.waits_for_sampling_info());
  const BatchResult r = std::move(ticket).take();
  ASSERT_TRUE(r.status.is_ok());
  EXPECT_EQ(r.rows[0].token, next_token({5, 6}));
  EXPECT_EQ(r.rows[1].token, best_of({7, 8}, {3, 40, 511}));
  EXPECT_EQ(r.rows[2].token, best_of({9}, {0, 70, 300, 301}));
}

TEST_P(MaskedRows, WaitAsLongAsTheirInformation) {
  PendingForward ticket = launch(three_rows());
  for (int i = 0; i < 50 && !ticket.launch_done().ready(); i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(ticket.copy_done().ready());
  SamplingInfo info;
  allow(info, {3});
  allow(info, {4});
  ticket.set_sampling_info(info);
  const BatchResult r = std::move(ticket).take();
  EXPECT_EQ(r.rows[1].token, 3);
  EXPECT_EQ(r.rows[2].token, 4);
  EXPECT_GE(r.times.ended, r.times.started);
  EXPECT_GE(r.times.started, r.times.submitted);
  EXPECT_GT(r.times.stood_still, 0);
  EXPECT_LE(r.times.stood_still, r.times.ended - r.times.started);
  // What they emitted is what a placeholder means.
  const BatchResult next = launch(decode(2, placeholder(2), 2, 1)).take();
  EXPECT_EQ(next.rows[0].token, next_token({7, 8, 3}));
  EXPECT_EQ(next.times.stood_still, 0);
}

TEST_P(MaskedRows, LogprobsAreOfTheModelsOwnDistribution) {
  SamplingParams p = greedy();
  p.top_logprobs = 2;
  const RowResult free = launch(prefill(1, {5, 6}, 1, p)).take().rows[0];
  const int32_t second = free.top[1].id;
  PendingForward ticket = launch(masked(prefill(2, {5, 6}, 5, p)));
  SamplingInfo info;
  allow(info, {second});
  ticket.set_sampling_info(info);
  const RowResult r = std::move(ticket).take().rows[0];
  EXPECT_EQ(r.token, second);
  EXPECT_EQ(r.logprob, free.top[1].logprob);
  EXPECT_EQ(r.top, free.top);
}

TEST_P(MaskedRows, InformationThatNeverComesFailsThemAlone) {
  PendingForward ticket = launch(three_rows());
  const BatchResult r = std::move(ticket).take();
  EXPECT_TRUE(r.status.is_ok());
  EXPECT_EQ(r.rows[0].token, next_token({5, 6}));
  EXPECT_EQ(r.rows[1].status, RowStatus::kFailed);
  EXPECT_EQ(r.rows[2].status, RowStatus::kFailed);
  const BatchResult next =
      launch(join(decode(1, placeholder(1), 2, 1), decode(2, placeholder(2), 2, 1))).take();
  EXPECT_EQ(next.rows[0].token, next_token({5, 6, r.rows[0].token}));
  EXPECT_EQ(next.rows[1].status, RowStatus::kFailed);
}

TEST_P(MaskedRows, AMissingOrEmptySetFailsItsRowAlone) {
  for (bool empty : {false, true}) {
    PendingForward ticket = launch(three_rows());
    SamplingInfo info;
    empty ? allow(info, {}) : no_set(info, RowMask::kMissing);
    allow(info, {11});
    ticket.set_sampling_info(info);
    const BatchResult r = std::move(ticket).take();
    EXPECT_EQ(r.rows[0].token, next_token({5, 6}));
    EXPECT_EQ(r.rows[1].status, RowStatus::kFailed);
    EXPECT_EQ(r.rows[2].token, 11);
  }
}

TEST_P(MaskedRows, AnEndedRowIsDroppedAndMovesNothing) {
  SamplingParams drawn = greedy();
  drawn.temperature = 1, drawn.frequency_penalty = 1;
  PendingForward first = launch(prefill(2, {7, 8}, 5, drawn));
  const int32_t token = std::move(first).take().rows[0].token;
  PendingForward ticket = launch(join(masked(decode(2, token, 2, 1)), prefill(1, {5, 6}, 1)));
  SamplingInfo info;
  no_set(info, RowMask::kEnded);
  ticket.set_sampling_info(info);
  const BatchResult r = std::move(ticket).take();
  EXPECT_EQ(r.rows[0].status, RowStatus::kDropped);
  EXPECT_EQ(r.rows[1].token, next_token({5, 6}));
}

TEST_P(MaskedRows, TakeDropsThemBeforeTheirInformation) {
  PendingForward a = launch(prefill(2, {7, 8}, 5, greedy(/*max_tokens=*/1)));
  ModelWorkerBatch b = masked(decode(2, placeholder(2), 2, 1));
  PendingForward ticket = launch(join(b, masked(prefill(3, {9}, 9))));
  (void)std::move(a).take();
  SamplingInfo info;
  allow(info, {1});  // nobody looks at it
  allow(info, {12});
  ticket.set_sampling_info(info);
  const BatchResult r = std::move(ticket).take();
  EXPECT_EQ(r.rows[0].status, RowStatus::kDropped);
  EXPECT_EQ(r.rows[1].token, 12) << "the sets are in the order of the batch's rows, dropped or not";
}

// While the device is in the step before, the masked launch is taken back: nothing waits for it.
TEST_P(MaskedRows, ARecalledLaunchLeavesNoTrace) {
  for (int round = 0; round < 10; round++) {
    Gate gate;
    model_.gate_next = &gate;
    PendingForward running = launch(prefill(4, {20, round}, 13, greedy(), uint32_t(10 + round)));
    gate.wait_until_entered();
    ModelWorkerBatch b = masked(prefill(2, {7, round}, 5, greedy(), uint32_t(10 + round)));
    PendingForward ticket = launch(b);
    if (round % 2) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (round % 3 == 0) {  // its second part is queued, too
      SamplingInfo info;
      allow(info, {1});
      ticket.set_sampling_info(std::move(info));
    }
    ASSERT_TRUE(ticket.try_recall());
    b.id = ++id_;
    PendingForward again = launch(join(b, prefill(3, {9, round}, 9, greedy(), uint32_t(10 + round))));
    gate.open = true;
    EXPECT_EQ(std::move(running).take().rows[0].token, next_token({20, round}));
    SamplingInfo info;
    allow(info, {round});
    again.set_sampling_info(std::move(info));
    const BatchResult r = std::move(again).take();
    EXPECT_EQ(r.rows[0].token, round);
    EXPECT_EQ(r.rows[1].token, next_token({9, round}));
  }
}

TEST_P(MaskedRows, AFailureOfTheModelPartFailsTheStep) {
  model_.fail_next = true;
  PendingForward ticket = launch(three_rows());
  SamplingInfo info;
  allow(info, {1});
  allow(info, {2});
  ticket.set_sampling_info(std::move(info));
  const BatchResult r = std::move(ticket).take();
  EXPECT_EQ(r.status.message(), "injected");
  for (const RowResult& row : r.rows) EXPECT_EQ(row.status, RowStatus::kFailed);
  const BatchResult next =
      launch(join(decode(1, placeholder(1), 2, 1), decode(2, placeholder(2), 2, 1))).take();
  EXPECT_EQ(next.rows[0].status, RowStatus::kFailed);
  EXPECT_EQ(next.rows[1].status, RowStatus::kFailed);
}

// Prompt logprobs in front, more than the logits have room for at once.
TEST_P(MaskedRows, ShareTheBatchWithGroupsOfFreeRows) {
  const std::vector<int32_t> prompt(100, 20);
  ModelWorkerBatch b = masked(prefill(1, prompt, 1));
  for (int32_t i = 4; i < 25; i++) b.page_writes.push_back({1, i, 1 + i});
  b.rows[0].prompt_logprob_begin = 0;
  b.rows[0].n_targets = 99;
  b.prompt_targets.assign(99, 20);
  PendingForward ticket = launch(join(std::move(b), prefill(2, {5}, 30)));
  SamplingInfo info;
  allow(info, {100, 101});
  ticket.set_sampling_info(std::move(info));
  const BatchResult r = std::move(ticket).take();
  EXPECT_EQ(r.rows[0].prompt_logprobs.size(), 99u);
  EXPECT_EQ(r.rows[0].token, best_of(prompt, {100, 101}));
  EXPECT_EQ(r.rows[1].token, next_token({5}));
}

TEST_P(MaskedRows, MayBeMoreThanTheLogitsHaveRoomFor) {
  constexpr int32_t kMany = 100;
  HashModel model;
  auto runner = make_hash_runner(*device_, model, table_, kMany);
  ModelWorker worker(*runner);
  ModelWorkerBatch b = masked(prefill(1, {1}, 1));
  b.page_writes.resize(1);
  SamplingInfo info;
  allow(info, {1, 301});
  for (int32_t i = 2; i <= kMany; i++) {
    ModelWorkerBatch one = masked(prefill(i, {i}, i));
    one.page_writes.resize(1);
    b = join(std::move(b), one);
    allow(info, {i, 300 + i});
  }
  PendingForward ticket = WorkerFixture::launch(worker, std::move(b));
  ticket.set_sampling_info(std::move(info));
  const BatchResult r = std::move(ticket).take();
  for (int32_t i = 1; i <= kMany; i++) EXPECT_EQ(r.rows[size_t(i - 1)].token, best_of({i}, {i, 300 + i}));
}

TEST_P(MaskedRows, MisuseEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SamplingInfo one;
  allow(one, {1});
  PendingForward free = launch(prefill(1, {5, 6}, 1));
  EXPECT_DEATH(free.set_sampling_info(one), "no row of batch .* waits");
  (void)std::move(free).take();
  PendingForward ticket = launch(three_rows());
  const auto too_few = [&] {
    ticket.set_sampling_info(one);  // of two rows
    (void)ticket.copy_done().wait();
  };
  EXPECT_DEATH(too_few(), "1 vs 2");
  EXPECT_DEATH(
      {
        PendingForward early = launch(prefill(4, {5}, 13));
        (void)std::move(early).take();
      },
      "wait for sampling information");
  (void)std::move(ticket).take();
  ModelWorkerBatch silent = masked(prefill(1, {5, 6}, 1));
  silent.rows[0].emits = false;
  EXPECT_DEATH((void)launch(silent).take(), "emits nothing");
}

}  // namespace
}  // namespace gapless
