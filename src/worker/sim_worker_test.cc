// The worker on the simulated accelerator: the real sampler, future map and page table over the simulated
// model, whose answers are known from the ids alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "device/sim/sim_device.h"
#include "model/sim/sim_model.h"
#include "worker/model_runner.h"

namespace gapless {
namespace {

constexpr int32_t kEos = 2;

struct SimWorkerOptions {
  std::string profile = "zero";
  bool stepped = false;
  int32_t seqs = 4, context = 64, max_rows = 64;
};

// One runner and requests that decode greedily, each in the slot of its own number, its pages in a row.
struct SimWorker {
  explicit SimWorker(const SimWorkerOptions& o)
      : options(o), device({.profile = find_sim_profile(o.profile).value(), .stepped = o.stepped}) {
    runner = ModelRunner::create(device, *model, table,
                                 {.limits = {.max_rows = options.max_rows, .max_seqs = 2 * options.seqs},
                                  .request_slots = 2 * options.seqs + 1,
                                  .max_pages_per_request = pages(),
                                  .total_pages = options.seqs * pages(),
                                  .page_size = kPageSize,
                                  .kv_dtype = KvDtype::kF16,
                                  .eos_ids = {kEos}})
                 .value();
  }

  int32_t pages() const { return options.context / kPageSize; }
  int32_t first_page(int32_t slot) const { return 1 + (slot - 1) * pages(); }
  const SimModel& numbers() const { return device.profile().model; }

  ModelWorkerBatch batch() {
    ModelWorkerBatch b;
    b.id = ++last_id;
    return b;
  }
  void add_row(ModelWorkerBatch& b, int32_t slot, std::vector<int32_t> ids, int32_t start_pos,
               int32_t output_index) {
    b.rows.push_back({.slot = slot,
                      .epoch = uint32_t(slot),
                      .input_begin = int32_t(b.input_ids.size()),
                      .n_tokens = int32_t(ids.size()),
                      .start_pos = start_pos,
                      .emits = true,
                      .output_index = output_index});
    b.input_ids.insert(b.input_ids.end(), ids.begin(), ids.end());
  }
  void add_prompt(ModelWorkerBatch& b, int32_t slot, const std::vector<int32_t>& ids, SamplingParams params) {
    for (int32_t i = 0; i < pages(); ++i) b.page_writes.push_back({slot, i, first_page(slot) + i});
    b.slot_inits.push_back({.slot = slot,
                            .epoch = uint32_t(slot),
                            .params = std::move(params),
                            .cached_tokens = 0,
                            .prompt_ids = ids,
                            .output_ids = {}});
    add_row(b, slot, ids, 0, 0);
  }
  PendingForward launch(ModelWorkerBatch b) {
    return ModelWorker(*runner).forward_batch_generation(Frozen(std::move(b)));
  }
  PendingForward decode(int32_t slot, int32_t id, int32_t pos, int32_t output_index) {
    ModelWorkerBatch b = batch();
    add_row(b, slot, {id}, pos, output_index);
    return launch(std::move(b));
  }

  static constexpr int32_t kPageSize = 4;

  const SimWorkerOptions options;
  SimDevice device;
  const std::unique_ptr<Model> model = make_sim_model(device.profile());
  const OpTable table{};
  std::unique_ptr<ModelRunner> runner;
  uint64_t last_id = 0;
};

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  p.max_tokens = 1000;
  p.ignore_eos = true;
  p.top_logprobs = 0;
  return p;
}

// Expected greedy continuation, and the ids so far.
int32_t next_of(const std::vector<int32_t>& ids, const SimModel& model) {
  const std::vector<float> logits = sim_logits(ids, model.vocab_size, sim_readback(model));
  return int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(SimWorker, TwoLaunchesDeepItGivesTheOraclesTokens) {
  for (const char* profile : {"zero", "b200-llama3.2-1b"}) {
    SimWorker w({.profile = profile});
    std::vector<int32_t> ids{5, 6, 8, 9, 10};
    std::deque<PendingForward> launched;
    ModelWorkerBatch b = w.batch();
    w.add_prompt(b, 2, ids, greedy());
    launched.push_back(w.launch(std::move(b)));
    for (int32_t i = 1; i < 50; ++i) {
      launched.push_back(w.decode(2, placeholder(2), 4 + i, i));
      const RowResult row = std::move(launched.front()).take().rows[0];
      launched.pop_front();
      ASSERT_EQ(row.token, next_of(ids, w.numbers())) << profile << ", token " << i;
      ids.push_back(row.token);
    }
    (void)std::move(launched.front()).take();
  }
}

TEST(SimWorker, APoisonedPageChangesTheAnswer) {
  for (int32_t page = 0; page < 3; ++page) {  // of positions 0 .. 11
    SimWorker w({});
    std::vector<int32_t> ids{5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    ModelWorkerBatch b = w.batch();
    w.add_prompt(b, 2, ids, greedy());
    ids.push_back(w.launch(std::move(b)).take().rows[0].token);
    const RowResult healthy = w.decode(2, ids.back(), 12, 1).take().rows[0];
    EXPECT_EQ(healthy.token, next_of(ids, w.numbers()));
    ids.push_back(healthy.token);
    w.runner->poison_page(w.first_page(3));  // another request's
    const RowResult neighbour = w.decode(2, ids.back(), 13, 2).take().rows[0];
    EXPECT_EQ(neighbour.token, next_of(ids, w.numbers()));
    ids.push_back(neighbour.token);
    w.runner->poison_page(w.first_page(2) + page);
    EXPECT_NE(w.decode(2, ids.back(), 14, 3).take().rows[0].token, next_of(ids, w.numbers()));
  }
}

TEST(SimWorker, AStepIsTakenByAdvanceAndRecalledBefore) {
  SimWorker w({.stepped = true});
  ModelWorkerBatch first = w.batch(), second = w.batch(), third = w.batch();
  w.add_prompt(first, 1, {5, 6}, greedy());
  w.add_prompt(second, 2, {7, 8}, greedy());
  w.add_prompt(third, 3, {9, 10}, greedy());
  PendingForward a = w.launch(std::move(first)), b = w.launch(std::move(second));
  EXPECT_FALSE(a.launch_done().ready());
  EXPECT_TRUE(w.device.advance());
  EXPECT_TRUE(a.launch_done().ready());
  EXPECT_FALSE(a.copy_done().ready());
  EXPECT_FALSE(a.try_recall());
  EXPECT_TRUE(b.try_recall());
  PendingForward c = w.launch(std::move(third));
  while (w.device.advance()) {
  }
  EXPECT_EQ(std::move(a).take().rows[0].token, next_of({5, 6}, w.numbers()));
  EXPECT_EQ(std::move(c).take().rows[0].token, next_of({9, 10}, w.numbers()));
  EXPECT_EQ(w.device.stats().steps, 2);
}

// Prints what a step of 256 rows costs this machine beside what it costs the simulated one. A timed profile
// is of use where the first is well below the second.
TEST(SimWorker, PrintsOwnWorkPerStep) {
  struct Case {
    const char* name;
    SamplingParams params;
  };
  SamplingParams plain = greedy();
  plain.top_logprobs = -1;
  SamplingParams drawn = plain, nucleus = plain, penalties = plain, logprobs = plain, all = plain;
  for (SamplingParams* p : {&drawn, &nucleus, &all}) p->temperature = 1;
  for (SamplingParams* p : {&nucleus, &all}) p->top_p = 0.9f;
  for (SamplingParams* p : {&logprobs, &all}) p->top_logprobs = 5;
  for (SamplingParams* p : {&penalties, &all}) {
    p->frequency_penalty = p->presence_penalty = 0.5f;
    p->repetition_penalty = 1.1f;
  }
  constexpr int32_t kSeqs = 256, kPrompt = 1000, kSteps = 24;
  for (const Case& c :
       {Case{"greedy", plain}, Case{"temperature 1", drawn}, Case{"top_p", nucleus},
        Case{"penalties", penalties}, Case{"5 logprobs", logprobs}, Case{"all of these", all}}) {
    SimWorker w({.profile = "b200-llama3.2-1b", .seqs = kSeqs, .context = 1024, .max_rows = 4096});
    for (int32_t slot = 1; slot <= kSeqs; slot += 4) {
      ModelWorkerBatch b = w.batch();
      for (int32_t s = slot; s < slot + 4; ++s)
        w.add_prompt(b, s, std::vector<int32_t>(kPrompt, s % 200), c.params);
      ASSERT_TRUE(w.launch(std::move(b)).take().status.is_ok());
    }
    const SimDevice::Stats before = w.device.stats();
    std::deque<PendingForward> launched;
    double cost = 0;
    const auto take = [&] {
      const BatchResult result = std::move(launched.front()).take();
      launched.pop_front();
      for (const RowResult& row : result.rows) ASSERT_EQ(row.status, RowStatus::kOk);
      cost += result.times.ended - result.times.started;
    };
    for (int32_t i = 1; i <= kSteps; ++i) {
      ModelWorkerBatch b = w.batch();
      for (int32_t s = 1; s <= kSeqs; ++s) w.add_row(b, s, {placeholder(s)}, kPrompt + i - 1, i);
      launched.push_back(w.launch(std::move(b)));
      if (launched.size() == 2) take();
    }
    while (!launched.empty()) take();
    const SimDevice::Stats after = w.device.stats();
    ASSERT_EQ(after.steps - before.steps, kSteps);
    std::printf("%-14s own work %4.0f us of %4.0f us per step, %d of %d late\n", c.name,
                (after.own_work_seconds - before.own_work_seconds) / kSteps * 1e6, cost / kSteps * 1e6,
                int(after.overruns - before.overruns), kSteps);
  }
}

}  // namespace
}  // namespace gapless
