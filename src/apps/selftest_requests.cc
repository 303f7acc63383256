// The requests of the self-test.
#include <algorithm>
#include <random>

#include "apps/selftest.h"

namespace gapless {

namespace {

// Prompts begin with one of these few, so that many share a beginning.
constexpr int kPrefixes = 4;
constexpr int32_t kLongestPrefix = 64, kLongestAnswer = 40;

class RequestMaker {
 public:
  RequestMaker(uint64_t seed, int32_t chunk_tokens, const std::vector<int32_t>& usable, int32_t context)
      : random_(seed), usable_(usable), context_(context), chunk_(chunk_tokens) {
    for (int i = 0; i < kPrefixes; ++i) prefixes_.push_back(ids(kLongestPrefix));
  }

  GenerateRequest make() {
    GenerateRequest request;
    request.max_tokens = between(1, kLongestAnswer);
    request.prompt = prompt(context_ - *request.max_tokens);
    request.seed = random_();
    request.n = chance(10) ? between(2, 4) : 1;
    sampling(request.sampling);
    ends(request);
    if (!chance(25)) request.sampling.top_logprobs = between(0, 5);
    request.want_prompt_logprobs = request.sampling.top_logprobs >= 0 && chance(8);
    return request;
  }

 private:
  bool chance(int percent) { return between(0, 99) < percent; }
  int32_t between(int32_t low, int32_t high) { return low + int32_t(random_() % uint64_t(high - low + 1)); }
  float real(float low, float high) { return low + (high - low) * float(between(0, 1000)) / 1000; }
  int32_t id() { return usable_[size_t(between(0, int32_t(usable_.size()) - 1))]; }
  std::vector<int32_t> ids(int32_t count) {
    std::vector<int32_t> out(static_cast<size_t>(count));
    std::generate(out.begin(), out.end(), [this] { return id(); });
    return out;
  }

  std::vector<int32_t> prompt(int32_t room) {
    std::vector<int32_t> out;
    if (chance(60)) {
      const std::vector<int32_t>& prefix = prefixes_[size_t(between(0, kPrefixes - 1))];
      out.assign(prefix.begin(), prefix.begin() + between(1, kLongestPrefix));
    }
    const bool several_chunks = chunk_ > 0 && chance(4);
    const std::vector<int32_t> rest = ids(several_chunks ? chunk_ + between(1, chunk_) : between(1, 32));
    out.insert(out.end(), rest.begin(), rest.end());
    out.resize(size_t(std::clamp<int64_t>(int64_t(out.size()), 1, std::max(1, room))));
    return out;
  }
  void sampling(SamplingParams& p) {
    p.temperature = chance(40) ? 0 : real(0.3f, 1.5f);
    if (chance(30)) p.top_k = between(1, 50);
    if (chance(30)) p.top_p = real(0.5f, 1);
    if (chance(20)) p.min_p = real(0, 0.2f);
    if (chance(20)) p.presence_penalty = real(-1, 1);
    if (chance(20)) p.frequency_penalty = real(-1, 1);
    if (chance(20)) p.repetition_penalty = real(0.8f, 1.4f);
    if (chance(15)) p.logit_bias = {{id(), real(-5, 5)}};
  }
  void ends(GenerateRequest& request) {
    SamplingParams& p = request.sampling;
    p.ignore_eos = chance(30);
    if (chance(15)) p.min_tokens = between(1, *request.max_tokens);
    if (chance(20)) p.stop_token_ids = ids(20);
    static const char* const kStops[] = {"e", " a", "the", ".", "\n", "in"};
    if (chance(25)) request.stop = {kStops[between(0, 5)], std::string(kStops[between(0, 5)]) + "x"};
  }

  std::mt19937_64 random_;
  const std::vector<int32_t>& usable_;
  const int32_t context_, chunk_;
  std::vector<std::vector<int32_t>> prefixes_;
};

}  // namespace

std::vector<GenerateRequest> selftest_requests(int32_t count, uint64_t seed, int32_t chunk_tokens,
                                               const std::vector<int32_t>& usable, int32_t context_length) {
  RequestMaker maker(seed, chunk_tokens, usable, context_length);
  std::vector<GenerateRequest> requests;
  for (int32_t i = 0; i < count; ++i) requests.push_back(maker.make());
  return requests;
}

}  // namespace gapless
