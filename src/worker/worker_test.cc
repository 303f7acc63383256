// The worker on the CPU device with a model whose KV is the token ids themselves: its next token is a hash of
// every id it reads back through the page table, so a wrong page, slot, position or placeholder changes the
// answer.
#include <gtest/gtest.h>

#include "device/registry.h"
#include "worker/model_runner.h"

namespace gapless {
namespace {

constexpr int32_t kVocab = 512, kPageSize = 4, kPages = 32, kEos = 7;

int32_t next_token(const std::vector<int32_t>& ids) {
  uint32_t h = 2166136261u;
  for (int32_t id : ids) h = (h ^ uint32_t(id)) * 16777619u;
  return int32_t(h % kVocab);
}

class HashModel : public Model {
 public:
  HashModel() {
    config_ = {.architecture = "hash",
               .name = {},
               .n_layers = 1,
               .dim = 1,
               .n_heads = 1,
               .n_kv_heads = 1,
               .head_dim = 1,
               .ffn_dim = 1,
               .vocab_size = kVocab,
               .context_length = 128,
               .n_params = 0,
               .quantisation = {}};
  }
  const ModelConfig& config() const override { return config_; }
  Status reserve(Device&, int32_t) override { return {}; }
  void forward(OpList& ops, const OpTable&, const ForwardInputs& in, const KvView& kv) override {
    kv_ = kv;
    ops.push<one, write_kv>("write_kv", Params{in, kv, {}, nullptr, 0});
    if (fail_next) ops.push<one, fail>("fail", Params{in, kv, {}, nullptr, 0});
    fail_next = false;
  }
  void logits(OpList& ops, const OpTable&, const ForwardInputs& in, int32_t begin, int32_t cap, float* logits,
              int64_t ld) override {
    ops.push<one, read_back>("read_back", Params{in, kv_, {in.n_logit_rows, begin, cap}, logits, ld});
  }
  bool fail_next = false;

 private:
  struct Params {
    ForwardInputs in;
    KvView kv;
    Rows rows;
    float* logits;
    int64_t ld;
  };
  static int32_t one(const Params&) { return 1; }
  static uint16_t& kv_at(const KvView& kv, int32_t slot, int32_t pos) {
    return kv.k[kv.page_table[slot * kv.ld_page_table + pos / kPageSize] * kPageSize + pos % kPageSize];
  }
  static void write_kv(const Params& p, int32_t, OpContext&) {
    for (int32_t r = 0; r < *p.in.n_rows; r++)
      kv_at(p.kv, p.in.slots[r], p.in.positions[r]) = uint16_t(p.in.ids[r]);
  }
  static void fail(const Params&, int32_t, OpContext& c) { c.fail(Status::internal("injected")); }
  static void read_back(const Params& p, int32_t, OpContext&) {
    const KvView& kv = p.kv;
    for (int32_t i = 0; i < p.rows.size(); i++) {
      const int32_t row = p.in.logit_rows[p.rows.begin + i];
      std::vector<int32_t> ids;
      for (int32_t pos = 0; pos <= p.in.positions[row]; pos++) ids.push_back(kv_at(kv, p.in.slots[row], pos));
      std::fill_n(p.logits + i * p.ld, kVocab, 0.f);
      p.logits[i * p.ld + next_token(ids)] = 5.f;
    }
  }
  ModelConfig config_;
  KvView kv_{};
};

class WorkerTest : public testing::Test {
 protected:
  static SamplingParams greedy(int32_t max_tokens = 16) {
    SamplingParams p;
    p.temperature = 0;
    p.max_tokens = max_tokens;
    return p;
  }

  void SetUp() override {
    device_ = make_device("cpu", {.threads = 1}).value();
    ModelRunnerOptions options{.limits = {.max_rows = 64, .max_seqs = 8},
                               .request_slots = 9,
                               .max_pages_per_request = 32,
                               .total_pages = kPages,
                               .page_size = kPageSize,
                               .kv_dtype = KvDtype::kF16,
                               .eos_ids = {kEos}};
    runner_ = ModelRunner::create(*device_, model_, table_, options).value();
    worker_ = std::make_unique<ModelWorker>(*runner_);
  }

  // A prompt of one request in a slot of its own, pages from first_page on.
  ModelWorkerBatch prefill(int32_t slot, std::vector<int32_t> ids, int32_t first_page,
                           SamplingParams params = greedy()) {
    ModelWorkerBatch b{.id = ++id_,
                       .mode = ForwardMode::kExtend,
                       .rows = {},
                       .input_ids = ids,
                       .prompt_targets = {},
                       .page_writes = {},
                       .slot_inits = {}};
    b.rows.push_back({.slot = slot,
                      .epoch = 1,
                      .input_begin = 0,
                      .n_tokens = int32_t(ids.size()),
                      .start_pos = 0,
                      .emits = true,
                      .output_index = 0});
    for (int32_t i = 0; i < 4; i++) b.page_writes.push_back({slot, i, first_page + i});
    b.slot_inits.push_back({.slot = slot,
                            .epoch = 1,
                            .params = params,
                            .cached_tokens = 0,
                            .prompt_ids = ids,
                            .output_ids = {}});
    return b;
  }
  ModelWorkerBatch decode(int32_t slot, int32_t input, int32_t pos, int32_t output_index) {
    ModelWorkerBatch b{.id = ++id_,
                       .mode = ForwardMode::kDecode,
                       .rows = {},
                       .input_ids = {input},
                       .prompt_targets = {},
                       .page_writes = {},
                       .slot_inits = {}};
    b.rows.push_back({.slot = slot,
                      .epoch = 1,
                      .input_begin = 0,
                      .n_tokens = 1,
                      .start_pos = pos,
                      .emits = true,
                      .output_index = output_index});
    return b;
  }
  PendingForward launch(ModelWorkerBatch b) {
    return worker_->forward_batch_generation(Frozen(std::move(b)));
  }
  HashModel model_;
  OpTable table_{};
  std::unique_ptr<Device> device_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<ModelWorker> worker_;
  uint64_t id_ = 0;
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
  ModelWorkerBatch mixed = decode(2, placeholder(2), 2, 1);
  const ModelWorkerBatch other = prefill(4, {9, 9, 9}, 20);
  mixed.mode = ForwardMode::kMixed;
  mixed.rows.push_back(other.rows[0]);
  mixed.rows[1].input_begin = 1;
  mixed.input_ids.insert(mixed.input_ids.end(), other.input_ids.begin(), other.input_ids.end());
  mixed.page_writes = other.page_writes;
  mixed.slot_inits = other.slot_inits;
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
  for (int32_t i = 0; i < 60; i++) prompt.push_back(20 + i);
  SamplingParams params = greedy();
  params.top_logprobs = 1;
  ModelWorkerBatch b = prefill(1, prompt, 1, params);
  for (int32_t i = 4; i < 16; i++) b.page_writes.push_back({1, i, 1 + i});
  b.rows[0].prompt_logprob_begin = 0;
  b.rows[0].n_targets = 59;
  b.prompt_targets.assign(prompt.begin() + 1, prompt.end());
  const RowResult r = launch(std::move(b)).take().rows[0];
  ASSERT_EQ(r.prompt_top.size(), 59u);
  for (int32_t i = 0; i < 59; i++) {
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
