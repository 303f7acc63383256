// `gapless selftest`: the same requests one by one, all together in the normal loop and all together in the
// overlap loop must get the same answers, bit for bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace gapless {

// What a choice of a request was answered, with floats as their bits: text, so that a difference can be
// shown.
struct ChoiceAnswer {
  std::vector<std::string> tokens;  // id, and the logprobs that were asked for
  std::string text, finish;

  friend bool operator==(const ChoiceAnswer&, const ChoiceAnswer&) = default;
};
struct RequestAnswer {
  std::vector<std::string> prompt;  // logprobs of the prompt's tokens, if asked for
  std::vector<ChoiceAnswer> choices;
  std::string error;

  friend bool operator==(const RequestAnswer&, const RequestAnswer&) = default;
};

// The first place where two answers to request `index` differ and what both have there; empty: nowhere.
std::string difference(size_t index, const RequestAnswer& a, const RequestAnswer& b);

// Of all that the answers have, logprob bits included: two programs or machines with the same one gave the
// same answers.
uint64_t fingerprint(const std::vector<RequestAnswer>& answers);

// Mixed requests, a function of the seed: greedy and sampled, penalties, bias, min_tokens, logprobs, prompt
// logprobs, stop strings and tokens, several choices, prompts with common beginnings and some that are cut
// into chunks. usable: token ids that a prompt may have.
std::vector<GenerateRequest> selftest_requests(int32_t count, uint64_t seed, int32_t chunk_tokens,
                                               const std::vector<int32_t>& usable, int32_t context_length);

// One way to run the requests.
struct SelftestRun {
  std::string name;
  EventLoop loop = EventLoop::kNormal;
  bool together = true;
};
inline const SelftestRun kSelftestRuns[] = {{"alone", EventLoop::kNormal, false},
                                            {"together, normal loop", EventLoop::kNormal, true},
                                            {"together, overlap loop", EventLoop::kOverlap, true}};

// Runs the requests in each of these ways, each time with an empty prefix cache, prints progress on stderr
// and the verdict on stdout, and returns the exit code: 0 when all answers are the same and no request
// failed.
int selftest(EngineApi& engine, const std::vector<GenerateRequest>& requests,
             const std::function<void()>& empty_cache);

// Answers in the order of the requests. progress: called now and then with how many have ended. Blocks.
std::vector<RequestAnswer> run_requests(EngineApi& engine, const std::vector<GenerateRequest>& requests,
                                        bool together, const std::function<void(size_t)>& progress);

}  // namespace gapless
