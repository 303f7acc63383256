#include "scheduler/testing/workload.h"

#include <algorithm>
#include <array>
#include <random>

#include "sampling/testing/hash_grammar.h"
#include "scheduler/testing/harness.h"

namespace gapless::testing {

namespace {

// What a workload is made to meet; each is a few numbers of the same recipe.
enum class Shape {
  kAnything,
  kTight,  // many grow in a pool that is too small for them: retraction, memory stalls
  kFlood,  // requests of one token
  kBurst,  // waves of long prompts while others decode
  kChurn,  // they come, are aborted and go all the time, and the device is slow
};

struct Range {
  int32_t lo, hi;
};
struct Recipe {
  Range requests, prompt, max_tokens;
  std::vector<int32_t> spread;  // steps over which they arrive
  std::vector<double> pool;     // times what the largest request needs
  std::vector<int32_t> running;
  int32_t one_in_aborted;
};

Recipe recipe_of(Shape shape) {
  switch (shape) {
    case Shape::kAnything:
      return {{1, 24}, {1, 100}, {1, 12}, {1, 10, 100}, {1, 1.2, 1.5, 3, 10}, {1, 2, 3, 5, 8, 12, 16, 64}, 4};
    case Shape::kTight:
      return {{6, 14}, {1, 5}, {15, 30}, {10, 20, 40}, {1, 1.3, 1.7, 2.2}, {8, 16, 32}, 3};
    case Shape::kFlood:
      return {{30, 70}, {1, 12}, {1, 1}, {1, 10, 60}, {2, 5, 10}, {1, 4, 16, 64}, 20};
    case Shape::kBurst:
      return {{8, 16}, {20, 100}, {1, 16}, {1, 3, 30}, {1.5, 3, 10}, {2, 4, 8, 32}, 8};
    case Shape::kChurn:
      return {{16, 32}, {1, 16}, {1, 12}, {20, 40, 80}, {1.5, 3, 10}, {4, 16, 64}, 2};
  }
  return {};
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed), seed_(seed) {}

  Workload make() {
    constexpr std::array kShapes = {Shape::kAnything, Shape::kAnything, Shape::kChurn, Shape::kTight,
                                    Shape::kFlood,    Shape::kBurst,    Shape::kChurn, Shape::kTight};
    shape_ = kShapes[seed_ % kShapes.size()];
    recipe_ = recipe_of(shape_);
    choose_config();
    choose_requests();
    add_now_and_then(below(3) == 0, WorkloadEvent::Kind::kFlush);
    // A loop that begins anew has not looked ahead: what is tight then stalls.
    const bool often = shape_ == Shape::kTight && below(2);
    add_now_and_then(often ? between(4, 12) : below(3) == 0, WorkloadEvent::Kind::kSwitch);
    std::ranges::stable_sort(w_.events, {}, &WorkloadEvent::at);
    w_.loop = below(4) == 0 ? EventLoop::kNormal : EventLoop::kOverlap;
    w_.failures = below(8) == 0 ? between(1, 3) : 0;
    w_.held = below(4) != 0;
    w_.eagerness = between(1, 4);
    w_.driver_seed = rng_();
    return std::move(w_);
  }

 private:
  int32_t below(int32_t n) { return int32_t(rng_() % uint64_t(n)); }
  int32_t between(int32_t lo, int32_t hi) { return lo + below(hi - lo + 1); }
  int32_t within(Range range) { return between(range.lo, std::max(range.lo, range.hi)); }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[below(int32_t(values.size()))];
  }

  void choose_config() {
    SchedulerConfig& config = w_.config = small_config();
    config.page_size = one_of<int32_t>({1, 4, 16});
    if (shape_ == Shape::kTight) config.page_size = one_of<int32_t>({1, 1, 4});
    config.max_running_requests = one_of(recipe_.running);
    config.chunked_prefill_size = below(4) == 0 ? -1 : between(1, 48);
    config.max_prefill_tokens = between(48, 200);
    config.mixed_chunk = below(2);
    config.radix_cache = below(8) != 0;
    config.policy = SchedulePolicy(below(5));
    config.max_consecutive_prefill = between(1, 3);
    config.schedule_conservativeness = one_of<double>({0.1, 1, 1, 2});
    if (shape_ == Shape::kTight) {
      config.schedule_conservativeness = one_of<double>({0.02, 0.1, 0.3});
      if (below(2)) config.chunked_prefill_size = between(2, 8);
    }
    config.random_seed = rng_();
    config.context_length = between(40, 160);
    config.eos_ids = below(2) ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{1};
  }

  // Of a few families that share prefixes, or of nobody's.
  std::vector<int32_t> choose_prompt(Range length) {
    std::vector<int32_t> ids;
    const int32_t longest = std::min(length.hi, w_.config.context_length * 2 / 3);
    if (below(4) != 0) ids = prompt(within({std::min(length.lo, longest), longest}), below(3));
    for (int32_t n = below(shape_ == Shape::kTight ? 3 : 8); n > 0 || ids.empty(); n--)
      ids.push_back(2 + below(62));
    if (int32_t(ids.size()) >= w_.config.context_length) ids.resize(w_.config.context_length - 1);
    return ids;
  }

  Request choose_request(RequestId id) {
    // A long prompt that is half done when the others have grown into its memory.
    const bool half_done = shape_ == Shape::kTight && below(4) == 0;
    Request r = make_request(id, choose_prompt(half_done ? Range{20, 40} : recipe_.prompt), 0);
    const int32_t room = w_.config.context_length - int32_t(r.prompt_ids.size());
    r.params.max_tokens = std::min(within(half_done ? Range{1, 4} : recipe_.max_tokens), room);
    if (shape_ == Shape::kAnything && below(4) == 0) r.params.max_tokens = between(1, room);
    if (below(12) == 0) r.params.max_tokens = 0;
    if (below(shape_ == Shape::kTight ? 2 : 6) == 0)
      r.prompt_logprob_begin = below(int32_t(r.prompt_ids.size()));
    if (below(4) == 0 && shape_ != Shape::kFlood) r.n = between(2, 3);
    if (below(4) == 0) r.cache_namespace = "other";
    if (below(3) == 0) {
      r.grammar = std::make_shared<HashGrammar>(HashGrammar::Options{
          .seed = rng_(), .vocab_size = w_.config.vocab_size, .eos_ids = w_.config.eos_ids});
    }
    r.skip_special_tokens = below(2);
    choose_sampling(r.params);
    for (int32_t n = below(shape_ == Shape::kTight ? 2 : 3); n > 0; n--) {
      std::string& stop = r.stop.emplace_back(size_t(2 + below(5)), 'a');
      for (char& c : stop) c = char('a' + below(5));
    }
    return r;
  }

  void choose_sampling(SamplingParams& params) {
    const bool grows = shape_ == Shape::kTight && below(2);
    params.ignore_eos = grows || below(2);
    params.temperature = below(2) ? 1.0f : 0.5f;
    params.frequency_penalty = below(2) ? 0.5f : 0.0f;
    params.presence_penalty = below(4) ? 0.0f : 1.5f;
    params.repetition_penalty = below(4) ? 1.0f : 1.25f;
    params.seed = rng_();
    if (below(4) == 0) params.logit_bias = {{2 + below(62), 1.0f}, {1, float(below(3))}};
    if (below(3) == 0) params.min_tokens = below(params.max_tokens + 1);
    if (!grows && below(3) == 0) params.stop_token_ids = {2 + below(62), 2 + below(62)};
    if (below(3) == 0) params.top_logprobs = below(2);
  }

  void choose_requests() {
    const int32_t n = within(recipe_.requests);
    spread_ = one_of(recipe_.spread);
    int64_t largest = 1;
    for (int32_t i = 0; i < n; i++) {
      const Request& r = w_.requests.emplace_back(choose_request(RequestId(i) + 1));
      const int64_t need = int64_t(r.prompt_ids.size()) + std::max(r.params.max_tokens, 1) - 1;
      largest = std::max(largest, (need + w_.config.page_size - 1) / w_.config.page_size);
      int64_t at = below(spread_);
      if (shape_ == Shape::kBurst) at = at / 10 * 10;
      w_.events.push_back({at, WorkloadEvent::Kind::kRequest, r.id});
      if (below(recipe_.one_in_aborted) == 0)
        w_.events.push_back({at + below(40), WorkloadEvent::Kind::kAbort, r.id});
    }
    w_.config.max_total_tokens = int64_t(double(largest) * one_of(recipe_.pool)) * w_.config.page_size;
  }

  void add_now_and_then(int32_t n, WorkloadEvent::Kind kind) {
    for (; n > 0; n--) w_.events.push_back({below(spread_ * 2 + 60), kind});
  }

  std::mt19937_64 rng_;
  const uint64_t seed_;
  Shape shape_ = Shape::kAnything;
  Recipe recipe_;
  int32_t spread_ = 1;
  Workload w_;
};

}  // namespace

Workload make_workload(uint64_t seed) {
  return Maker(seed).make();
}

}  // namespace gapless::testing
