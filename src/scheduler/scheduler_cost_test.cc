// What a steady decode step costs the scheduler: allocations are per step, never per row. A program of its
// own, as it replaces operator new.
#include <gtest/gtest.h>

#include "device/sim/sim_device.h"
#include "kernels/isa.h"
#include "model/sim/sim_model.h"
#include "scheduler/scheduler.h"
#include "worker/overlap_worker.h"
#include "worker/testing/counted_allocations.h"

namespace gapless {
namespace {

using testing::allocations;

constexpr int32_t kPage = 16;

class CountingSink : public TokenSink {
 public:
  int64_t tokens = 0;

 private:
  void on_tokens(std::vector<TokenDelta> deltas) override {
    for (const TokenDelta& delta : deltas) tokens += delta.token.has_value();
  }
};

// A scheduler on this thread, over the simulated accelerator with its own threads.
class Machine {
 public:
  explicit Machine(int32_t rows) : model_(make_sim_model(device_.profile())) {
    SchedulerConfig c;
    c.max_running_requests = rows;
    c.page_size = kPage;
    c.context_length = 512;
    c.chunked_prefill_size = -1;
    c.vocab_size = device_.profile().model.vocab_size;
    c.eos_ids = {2};
    c.max_total_tokens = int64_t(rows) * 512;
    auto tokens = std::make_shared<TokenBytes>();
    tokens->bytes = "a";
    tokens->offsets.assign(size_t(c.vocab_size) + 1, 1);
    tokens->offsets[0] = 0;
    tokens->control.assign(size_t(c.vocab_size), false);
    runner_ = ModelRunner::create(device_, *model_, table_,
                                  {.limits = {.max_rows = c.max_prefill_tokens + rows, .max_seqs = 2 * rows},
                                   .request_slots = c.request_slots(),
                                   .max_pages_per_request = c.max_pages_per_request(),
                                   .total_pages = c.max_total_pages(),
                                   .page_size = kPage,
                                   .kv_dtype = KvDtype::kF16,
                                   .eos_ids = c.eos_ids})
                  .value();
    normal_ = std::make_unique<ModelWorker>(*runner_);
    overlap_ = std::make_unique<OverlapWorker>(*runner_, tracer_.ring("forward"));
    overlap_->start();
    scheduler_ = std::make_unique<Scheduler>(
        c, Scheduler::Deps{*normal_, *overlap_, sink, inbox_, tokens, metrics_, tracer_, {}});
    scheduler_->set_loop(EventLoop::kOverlap);
    for (int32_t i = 0; i < rows; i++) {
      auto request = std::make_unique<Request>();
      request->id = RequestId(i) + 1;
      request->prompt_ids = {10, 11 + i % 50, 12 + i / 50, 13};
      request->params.max_tokens = 400;
      request->params.ignore_eos = true;
      request->params.frequency_penalty = 0.2f;
      inbox_.try_push(std::move(request));
    }
  }
  ~Machine() {
    inbox_.close();
    for (RequestId id = 1; scheduler_->step() != LoopWait::kStopped; id++) std::this_thread::yield();
  }

  // Until every running request has got n more tokens.
  void run(int64_t n_tokens) {
    for (const int64_t until = sink.tokens + n_tokens; sink.tokens < until;) {
      if (scheduler_->step() == LoopWait::kResultOrRequests) std::this_thread::yield();
    }
  }
  int64_t steps() const { return scheduler_->stats().steps; }
  CountingSink sink;

 private:
  SimDevice device_{{.profile = find_sim_profile("zero").value()}};
  std::unique_ptr<Model> model_;
  const OpTable table_ = *op_table(Isa::kReference);
  Tracer tracer_{64};
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<ModelWorker> normal_;
  std::unique_ptr<OverlapWorker> overlap_;
  Queue<SchedulerMessage> inbox_;
  MetricsRegistry metrics_;
  std::unique_ptr<Scheduler> scheduler_;
};

// Of the scheduler's thread, per step of steady decode, over several pages of every row.
double allocations_per_step(int32_t rows) {
  Machine machine(rows);
  machine.run(int64_t(rows) * 40);
  const int64_t before = allocations, steps = machine.steps();
  machine.run(int64_t(rows) * 128);
  return double(allocations - before) / double(machine.steps() - steps);
}

TEST(SchedulerCost, AllocationsArePerStepAndNotPerRow) {
  const double few = allocations_per_step(16), many = allocations_per_step(256);
  std::cout << "allocations per decode step: " << few << " with 16 rows, " << many << " with 256\n";
  // Lists of pages grow now and then: amortised, a fraction of one in sixteen steps and row.
  EXPECT_LT(many, few + 256.0 / kPage / 2);
  EXPECT_LT(few, 40);
}

}  // namespace
}  // namespace gapless
