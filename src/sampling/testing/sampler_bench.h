// A device, a sampler and its slots, and rows to sample from. For tests only.
#pragma once

#include <time.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "device/registry.h"
#include "sampling/sampler.h"

namespace gapless::testing {

using Logits = std::vector<std::vector<float>>;  // one row each

inline double process_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// A device, a sampler and its slots.
class Bench {
 public:
  Bench(int32_t vocab, std::vector<int32_t> eos_ids, int threads = 1, int32_t max_rows = 40)
      : ld_(vocab + 16), max_rows_(max_rows) {
    device_ = make_device("cpu", {.threads = threads}).value();
    stream_ = device_->create_stream();
    sampler_ = Sampler::create(*device_, vocab, std::move(eos_ids), max_rows).value();
    logits_ = device_->allocate(size_t(max_rows) * size_t(ld_) * sizeof(float), MemoryKind::kDevice).value();
  }

  void admit(int32_t slot, const SamplingParams& params, std::vector<int32_t> prompt = {},
             std::vector<int32_t> outputs = {}) {
    states_[size_t(slot)] = sampler_->prepare({.slot = slot,
                                               .epoch = 1,
                                               .params = params,
                                               .cached_tokens = 0,
                                               .prompt_ids = std::move(prompt),
                                               .output_ids = std::move(outputs)});
    slots_[size_t(slot)] = states_[size_t(slot)].get();
  }

  // One step, in groups of at most max_rows rows that share the buffer of logits.
  std::vector<SampleResult> run(const std::vector<LogitRow>& rows, const Logits& logits) {
    std::vector<SampleResult> results(rows.size());
    const int32_t count = int32_t(rows.size());
    for (int32_t begin = 0; begin < count; begin += max_rows_) {
      const int32_t cap = std::min(max_rows_, count - begin);
      for (int32_t r = 0; r < cap; ++r)
        std::copy(logits[size_t(begin + r)].begin(), logits[size_t(begin + r)].end(),
                  logits_.as<float>() + r * ld_);
      auto ops = stream_->new_ops();
      sampler_->push(*ops, {.rows = {&count, begin, cap},
                            .logit_rows = rows.data(),
                            .logits = logits_.as<float>(),
                            .ld = ld_,
                            .slots = slots_.data(),
                            .future_map = map_.data(),
                            .results = results.data()});
      const double start = process_cpu_seconds();
      CHECK(stream_->submit(std::move(ops))->wait().is_ok());
      cpu_seconds_ = process_cpu_seconds() - start;
    }
    return results;
  }
  // CPU seconds of all threads that the ops of one such step take: other programs do not change it much.
  double timed(const std::vector<LogitRow>& rows, const Logits& logits) {
    (void)run(rows, logits);
    return cpu_seconds_;
  }
  SampleResult one(int32_t slot, const std::vector<float>& logits) { return run({{slot, -1}}, {logits})[0]; }
  const FutureEntry& future(int32_t slot) const { return map_[size_t(slot)]; }

 private:
  static constexpr size_t kSlots = 65;
  double cpu_seconds_ = 0;  // of the last group
  const int64_t ld_;
  const int32_t max_rows_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sampler> sampler_;
  Buffer logits_;
  std::vector<SlotStatePtr> states_ = std::vector<SlotStatePtr>(kSlots);
  std::vector<SlotState*> slots_ = std::vector<SlotState*>(kSlots);
  std::vector<FutureEntry> map_ = std::vector<FutureEntry>(kSlots);
};

inline SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  p.max_tokens = 1000;
  return p;
}
inline SamplingParams drawn(uint64_t seed, float temperature = 1) {
  SamplingParams p;
  p.temperature = temperature;
  p.seed = seed;
  p.max_tokens = 1000;
  return p;
}

inline std::vector<float> random_row(std::mt19937& random, int32_t vocab, float spread = 3) {
  std::normal_distribution<float> d(0, spread);
  std::vector<float> l(static_cast<size_t>(vocab));
  for (float& x : l) x = d(random);
  return l;
}
inline std::vector<double> doubles(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}

inline int32_t argmax(const std::vector<double>& v) {
  return int32_t(std::max_element(v.begin(), v.end()) - v.begin());
}

}  // namespace gapless::testing
