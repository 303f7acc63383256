// A per-request hook of the kind that users write (a custom logits processor) runs on the device's side while
// the scheduler's thread composes the next batches and appends to its requests. What the hook reads must not
// change under it; built with ThreadSanitizer this test says whether it can.
#include <gtest/gtest.h>

#include <map>

#include "worker/overlap_worker.h"
#include "worker/testing/driver.h"

namespace gapless {
namespace {

using namespace testing;

// Reads the frozen batch of each step: again and again, as bytes, and row by row to follow every request's
// ids by the admissions in it and the input ids that the step resolved.
class HookedModel : public HashModel {
 public:
  // Scheduler thread, before the launch of a batch, which then lives in the ring as long as its step.
  void announce(const ModelWorkerBatch& batch) {
    ASSERT_TRUE(announced_.try_push({&batch, to_bytes(batch)}));
  }
  void forward(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) override {
    snapshots_.push_back(std::move(*announced_.pop()));  // launches come in order, and none is recalled
    ops.push<one_chunk, run_hook>("hook", Hook{this, &snapshots_.back(), in});
    HashModel::forward(ops, table, in, kv);
  }

  // Of the device's thread; to be read when it is done.
  int rows_seen = 0, outputs_seen = 0, changes = 0, wrong_ids = 0;

 private:
  struct Snapshot {
    const ModelWorkerBatch* batch;
    std::vector<std::byte> bytes;  // as the scheduler's thread saw it
  };
  struct Hook {
    HookedModel* model;
    const Snapshot* snapshot;
    ForwardInputs in;
  };
  struct History {
    uint32_t epoch = 0;
    size_t prompt = 0;
    std::vector<int32_t> ids;
  };
  static int32_t one_chunk(const Hook&) { return 1; }
  static void run_hook(const Hook& h, int32_t, OpContext&) {
    for (int i = 0; i < 3; i++) {
      h.model->changes += to_bytes(*h.snapshot->batch) != h.snapshot->bytes;
      std::this_thread::yield();
    }
    h.model->follow(*h.snapshot->batch, h.in);
  }
  void follow(const ModelWorkerBatch& batch, const ForwardInputs& in) {
    for (const SlotInit& init : batch.slot_inits) {
      History& h = histories_[init.slot] = {init.epoch, init.prompt_ids.size(), init.prompt_ids};
      h.ids.insert(h.ids.end(), init.output_ids.begin(), init.output_ids.end());
    }
    for (const BatchRow& row : batch.rows) wrong_ids += histories_[row.slot].epoch != row.epoch;
    for (int32_t r = 0; r < *in.n_rows; r++) {
      History& h = histories_[in.slots[r]];
      const size_t at = size_t(in.positions[r]);
      if (at == h.ids.size()) h.ids.push_back(in.ids[r]);
      wrong_ids += at >= h.ids.size() || h.ids[at] != in.ids[r];
      outputs_seen += at >= h.prompt;
      rows_seen++;
    }
  }

  Queue<Snapshot> announced_;
  std::deque<Snapshot> snapshots_;  // forward thread; the device reads those of launched steps
  std::map<int32_t, History> histories_;
};

TEST(KnownFailures, A_OVL_14_AHookReadsAFrozenSnapshotOfItsRow) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(seed);
    HookedModel model;
    const auto device = make_device("cpu", {.threads = 2}).value();
    const OpTable table{};
    const auto runner = make_hash_runner(*device, model, table);
    TraceRing trace("forward", 64);
    OverlapWorker worker(*runner, trace);
    worker.start();
    Driver driver(worker, seed,
                  {.retract = 0.05, .on_launch = [&](const ModelWorkerBatch& b) { model.announce(b); }});
    driver.run();
    EXPECT_EQ(model.changes, 0);
    EXPECT_EQ(model.wrong_ids, 0);
    EXPECT_GT(model.rows_seen, 20);
    EXPECT_GT(model.outputs_seen, 5);
    for (const TestRequest& r : driver.requests()) EXPECT_TRUE(r.finished);
  }
}

}  // namespace
}  // namespace gapless
