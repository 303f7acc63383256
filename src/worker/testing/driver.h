// A scheduler in miniature: random requests, random batches of them, results processed one launch late or at
// once, batches taken back at random. What a request answers must not depend on any of it.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <random>

#include "worker/testing/worker_fixture.h"

namespace gapless::testing {

struct TestRequest {
  int32_t slot;
  SamplingParams params;
  bool masked = false;
  bool retracts = false;  // at random; needs pages and the prompt again
  std::vector<int32_t> prompt;

  std::vector<int32_t> outputs;  // known
  std::vector<float> logprobs;
  uint32_t epoch = 0;
  int32_t launched_pos = 0, launched_outputs = 0, in_flight = 0;
  bool admitted = false, finished = false;
  std::vector<int32_t> ids() const {
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), outputs.begin(), outputs.end());
    return all;
  }
};

// With a mask a token depends on the one before it, as with a grammar.
inline bool allowed_after(int32_t previous, int32_t id) {
  return (uint32_t(previous) * 31 + uint32_t(id) * 17) % 3 == 0;
}

class Driver {
 public:
  struct Options {
    size_t depth = kMaxOutstanding;  // 1: every result is known before the next launch
    double recall = 0;               // probability for each launch
    double retract = 0;
    std::function<void()> between = [] {};             // after every action
    std::function<void(Event&)> wait = [](Event&) {};  // before a result is taken
    std::function<void(const ModelWorkerBatch&)> on_launch = [](const ModelWorkerBatch&) {};
  };
  Driver(ModelWorkerClient& worker, uint64_t seed, Options options);

  // Until every request has its answer.
  void run();
  const std::vector<TestRequest>& requests() const { return requests_; }
  int recalls() const { return recalls_; }
  int dropped() const { return dropped_; }

 private:
  struct Row {
    size_t request;
    uint32_t epoch;
    bool emits, masked;
  };
  struct InFlight {
    PendingForward ticket;
    std::vector<Row> rows;
  };
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  bool all_finished() const;
  bool launch();
  void add_row(ModelWorkerBatch& batch, std::vector<Row>& rows, size_t at);
  void admit(ModelWorkerBatch& batch, TestRequest& r);
  void give_masks();
  void process();
  void append(TestRequest& r, const RowResult& result);
  void between() { options_.between(); }

  ModelWorkerClient& worker_;
  Options options_;
  std::mt19937_64 random_;
  std::vector<TestRequest> requests_;
  std::deque<InFlight> in_flight_;
  uint64_t next_id_ = 1;
  uint32_t next_epoch_ = 1;
  int recalls_ = 0, dropped_ = 0;
};

}  // namespace gapless::testing
