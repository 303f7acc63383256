// What a launch costs the host, without the device: planning, checking and queueing a step of decode rows on
// the forward thread, and handing its result over. Prints thread CPU time (also for the op list of the model
// that GAPLESS_SMOLLM2 names) and counts allocations: a program of its own, as it replaces operator new.
#include <gtest/gtest.h>
#include <time.h>

#include <cstdlib>

#include "device/cpu/cpu_device.h"
#include "kernels/isa.h"
#include "model/gguf.h"
#include "model/registry.h"
#include "worker/overlap_worker.h"
#include "worker/testing/counted_allocations.h"
#include "worker/testing/hash_model.h"

namespace gapless {
namespace {

using testing::allocations;

// Its streams complete every step at once, and compute nothing.
class NullStream : public Stream {
 public:
  std::shared_ptr<Event> submit(std::unique_ptr<OpList> ops) override {
    n_ops = ops->ops().size();
    ops->clear();
    lists_.push_back(std::move(ops));
    auto event = std::make_shared<HostEvent>();
    event->set();
    return event;
  }
  std::unique_ptr<OpList> new_ops() override {
    if (lists_.empty()) return std::make_unique<OpList>();
    auto list = std::move(lists_.back());
    lists_.pop_back();
    return list;
  }
  void synchronize() override {}
  int workers() const override { return 1; }
  size_t n_ops = 0;  // of the last step

 private:
  std::vector<std::unique_ptr<OpList>> lists_;
};

class NullDevice : public CpuDevice {
 public:
  NullDevice() : CpuDevice(1) {}
  std::unique_ptr<Stream> create_stream() override {
    auto created = std::make_unique<NullStream>();
    stream = created.get();
    return created;
  }
  NullStream* stream = nullptr;  // the last one created
};

double thread_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

struct Cost {
  double launch_us = 0, take_us = 0;
  int64_t launch_allocations = 0, take_allocations = 0;
  size_t ops = 0;
};

constexpr int32_t kRows = 1024;

class LaunchCost {
 public:
  LaunchCost(Model& model, const OpTable& table)
      : runner_(ModelRunner::create(device_, model, table,
                                    {.limits = {.max_rows = kRows, .max_seqs = kRows},
                                     .request_slots = 2 * kRows + 1,
                                     .max_pages_per_request = 64,
                                     .total_pages = kRows,
                                     .page_size = 16,
                                     .kv_dtype = KvDtype::kF16,
                                     .eos_ids = {2}})
                    .value()),
        worker_(*runner_, trace_) {}

  // The cheapest of several steps: others use the machine, too.
  Cost decode(int32_t rows) {
    Cost best{1e9, 1e9};
    for (int32_t i = 0; i < 60; i++) {
      const Cost c = step(rows, 5 + i);
      if (i < 5) continue;  // warms up
      best.launch_us = std::min(best.launch_us, c.launch_us);
      best.take_us = std::min(best.take_us, c.take_us);
      best.launch_allocations = c.launch_allocations;
      best.take_allocations = c.take_allocations;
    }
    best.ops = device_.stream->n_ops;
    return best;
  }

 private:
  Cost step(int32_t rows, int32_t position) {
    ModelWorkerBatch batch;
    batch.id = ++id_;
    batch.mode = ForwardMode::kDecode;
    for (int32_t i = 0; i < rows; i++) {
      batch.rows.push_back({.slot = 1 + i,
                            .epoch = 1,
                            .input_begin = i,
                            .n_tokens = 1,
                            .start_pos = position,
                            .emits = true,
                            .output_index = position});
      batch.input_ids.push_back(placeholder(1 + i));
    }
    PendingForward ticket = worker_.forward_batch_generation(Frozen(std::move(batch)));
    Cost cost;
    int64_t before = allocations;
    double start = thread_cpu_seconds();
    EXPECT_TRUE(worker_.forward_one());
    cost.launch_us = (thread_cpu_seconds() - start) * 1e6;
    cost.launch_allocations = allocations - before;
    before = allocations;
    start = thread_cpu_seconds();
    const BatchResult result = std::move(ticket).take();
    cost.take_us = (thread_cpu_seconds() - start) * 1e6;
    cost.take_allocations = allocations - before;
    EXPECT_EQ(result.rows.size(), size_t(rows));
    return cost;
  }

  NullDevice device_;
  std::unique_ptr<ModelRunner> runner_;
  TraceRing trace_{"forward", 64};
  OverlapWorker worker_;
  uint64_t id_ = 0;
};

void print(const char* model, int32_t rows, const Cost& c) {
  fmt::print("{:8} {:5} rows {:4} ops: launch {:6.1f} us, {} allocations; take {:6.1f} us, {} allocations\n",
             model, rows, c.ops, c.launch_us, c.launch_allocations, c.take_us, c.take_allocations);
}

TEST(LaunchCost, DoesNotAllocatePerRow) {
  testing::HashModel model;
  const OpTable table{};
  LaunchCost cost(model, table);
  const Cost one = cost.decode(1);
  print("hash", 1, one);
  for (int32_t rows : {64, 256, 1024}) {
    const Cost c = cost.decode(rows);
    print("hash", rows, c);
    // Several groups of logits need longer op lists, which grow a few times in their life.
    EXPECT_LE(c.launch_allocations, one.launch_allocations) << rows;
    EXPECT_LE(c.take_allocations, one.take_allocations) << rows;
  }
}

TEST(LaunchCost, OfARealModel) {
  const char* path = std::getenv("GAPLESS_SMOLLM2");
  if (!path) GTEST_SKIP() << "GAPLESS_SMOLLM2 does not name a model";
  CpuDevice device(1);
  const GgufFile file = GgufFile::open(path).value();
  const auto model = load_model(file, device).value();
  LaunchCost cost(*model, *op_table(best_isa()));
  for (int32_t rows : {1, 64, 256, 1024}) print("SmolLM2", rows, cost.decode(rows));
}

}  // namespace
}  // namespace gapless
