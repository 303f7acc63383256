// A scheduler with a fake forward side, stepped from the test's thread; the memory laws and those of
// StepWatch are checked after every step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/fake_worker.h"
#include "scheduler/testing/oracle.h"
#include "scheduler/testing/received.h"
#include "scheduler/testing/step_watch.h"

namespace gapless::testing {

class Harness : public TokenSink {
 public:
  explicit Harness(SchedulerConfig config, EventLoop loop = EventLoop::kNormal);
  ~Harness() override;

  void send(Request request) { push(std::make_unique<Request>(std::move(request))); }
  void abort(RequestId id) { push(AbortRequest{id}); }
  void flush(std::function<void(int64_t)> done) { push(FlushCache{std::move(done)}); }
  void switch_loop(EventLoop to, std::function<void()> done = {}) { push(SwitchLoop{to, std::move(done)}); }
  void close() { inbox.close(); }

  // One step of the loop; a held worker runs when the loop would wait for it.
  LoopWait step();
  // One step, and the device stands still.
  LoopWait step_host();
  // Steps until the loop has to wait, while the device stands still.
  LoopWait settle();
  void run_until_idle();

  const Received& got(RequestId id, int32_t choice = 0) const { return received.at({id, choice}); }
  bool has(RequestId id, int32_t choice = 0) const { return received.contains({id, choice}); }
  Answer expected(const Request& request, int32_t choice = 0) const {
    return oracle(config, *tokens, request, choice);
  }
  void expect_answer(const Request& request, int32_t choice = 0) const;
  // The same, or the beginning of its answer when it failed or, if `aborted`, was aborted.
  void expect_answer_or_cut(const Request& request, int32_t choice, bool aborted) const;
  // Everything is given back; every page is free or in the tree.
  void expect_nothing_left();

  SchedulerConfig config;
  std::shared_ptr<const TokenBytes> tokens;
  Queue<SchedulerMessage> inbox;
  MetricsRegistry metrics;
  Tracer tracer{64};
  FakeWorker worker;
  ReceivedMap received;
  int64_t steps = 0, calls_to_sink = 0;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<StepWatch> watch;  // of step(), step_host() and what uses them

 private:
  void push(SchedulerMessage message);
  void on_tokens(std::vector<TokenDelta> deltas) override;
};

// A small configuration: vocabulary of 64, ids 0 and 1 are EOS, page 4, chunk 16, 8 running, 256 tokens of
// KV.
SchedulerConfig small_config();
// Letters, syllables of up to 3 bytes, and two control tokens.
std::shared_ptr<const TokenBytes> small_vocabulary(int32_t vocab_size);
// `n` distinct-looking ids.
std::vector<int32_t> prompt(int32_t n, int32_t flavour = 0);
Request make_request(RequestId id, std::vector<int32_t> prompt_ids, int32_t max_tokens);

}  // namespace gapless::testing
