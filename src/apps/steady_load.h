// Requests of one shape that keep a number of answers running: as one ends, another begins.
#pragma once

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace gapless {

struct LoadShape {
  int32_t open = 1;  // requests at the same time, those that wait included
  int32_t prompt_tokens = 128, decode_tokens = 128;
  int32_t logprobs = -1;  // as SamplingParams::top_logprobs
  bool penalties = false;
};

// Greedy, end-of-text ignored; with penalties that change the counts of every token.
GenerateRequest shaped_request(const LoadShape& shape, std::vector<int32_t> prompt, int32_t max_tokens);
// The same as the body of POST /v1/completions, streaming.
std::string shaped_body(const LoadShape& shape, const std::vector<int32_t>& prompt, int32_t max_tokens);

// Prompts of random ids that are no control tokens: no two begin alike for long. One thread.
class RandomPrompts {
 public:
  RandomPrompts(const Tokenizer& tokenizer, uint64_t seed) : tokenizer_(tokenizer), random_(seed) {}
  std::vector<int32_t> next(int32_t length);

 private:
  const Tokenizer& tokenizer_;
  std::mt19937_64 random_;
};

// How long request `index` of a load is. The first `open` ones look as if they had been running for a while,
// each for longer than the next: from then on ends and arrivals come evenly, and the contexts have their
// usual length.
struct ShapedLength {
  int32_t prompt, decode;
};
ShapedLength shaped_length(const LoadShape& shape, int64_t index);

// Runs from its creation until it is destroyed, on threads of its own. Its methods: any thread.
class SteadyLoad {
 public:
  virtual ~SteadyLoad() = default;
  virtual Status error() const = 0;  // the first that failed
};
// Events go to sinks that count them.
std::unique_ptr<SteadyLoad> inproc_load(Engine& engine, const LoadShape& shape, uint64_t seed);
// Over HTTP on the loopback interface: a server of its own, and the load generator as its client.
Result<std::unique_ptr<SteadyLoad>> http_load(Engine& engine, const LoadShape& shape, uint64_t seed);

}  // namespace gapless
