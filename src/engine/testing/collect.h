// Runs requests through an engine and gathers what came back, for tests of this and higher layers.
#pragma once

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine_api.h"

namespace gapless::testing {

// One choice, bit for bit.
struct Answer {
  std::vector<int32_t> ids;
  std::vector<uint32_t> logprob_bits;  // of the tokens, then of each token's most likely ones
  std::string text;
  std::vector<uint32_t> embedding_bits;
  std::string finish;  // "stop", "length", "abort", "error", with what matched
  bool operator==(const Answer&) const = default;
};
struct Outcome {
  std::vector<Answer> answers;
  std::vector<uint32_t> prompt_logprob_bits;
  std::vector<int32_t> prompt_ids;
  bool opens_reasoning = false;
  Usage usage;
  Status status;
};

// Collects the events of one request. wait() from any thread.
class CollectingSink : public ResponseSink {
 public:
  explicit CollectingSink(int32_t n) { outcome_.answers.resize(size_t(n)); }
  void on_event(ResponseEvent event) override;
  // Blocks until the request is over.
  Outcome wait();
  // Blocks until `tokens` tokens of all choices together have come, or the request is over.
  void wait_for_tokens(size_t tokens);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Outcome outcome_;
  size_t tokens_ = 0;
  bool done_ = false;
};

// Submits all at once and waits for all.
std::vector<Outcome> run_together(EngineApi& engine, const std::vector<GenerateRequest>& requests);
// One after the other.
std::vector<Outcome> run_alone(EngineApi& engine, const std::vector<GenerateRequest>& requests);

}  // namespace gapless::testing
