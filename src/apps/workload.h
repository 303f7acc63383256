// The requests of a load test: prompts of random words, and when they arrive. A function of the seed alone,
// and for a given seed the same prompts as those of a Python script that draws them with
// random.Random(seed).choice, so that figures of different tools compare.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gapless {

// Python's random.Random(seed): Mersenne Twister (Matsumoto, Nishimura 1998) seeded by init_by_array with the
// 32-bit words of the seed.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);
  uint32_t next_u32();
  uint32_t below(uint32_t n);  // choice(sequence of length n), n >= 1
  double uniform();            // random(): [0, 1) with 53 bits

 private:
  static constexpr int kSize = 624;
  void init(uint32_t seed);
  void refill();
  std::array<uint32_t, kSize> state_{};
  int next_ = kSize;
};

struct Workload {
  int requests = 32, prompt_tokens = 128, shared_prefix = 0;
  uint64_t seed = 1;
};
// `requests` prompts of prompt_tokens words; the first shared_prefix words are the same in all of them.
std::vector<std::string> make_prompts(const Workload& workload);

// Seconds from the start at which each request arrives: gaps are exponential with mean 1 / rate. rate > 0.
std::vector<double> poisson_arrivals(int requests, double rate, uint64_t seed);

}  // namespace gapless
