#include "apps/workload.h"

#include <bit>
#include <cmath>

#include "model/common_words.h"

namespace gapless {

void PythonRandom::init(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kSize; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

PythonRandom::PythonRandom(uint64_t seed) {
  const uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  const int key_size = key[1] ? 2 : 1;
  init(19650218u);
  int i = 1, j = 0;
  const auto advance = [&] {
    if (++i >= kSize) {
      state_[0] = state_[kSize - 1];
      i = 1;
    }
  };
  for (int k = kSize; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u)) + key[j] + uint32_t(j);
    advance();
    if (++j >= key_size) j = 0;
  }
  for (int k = kSize - 1; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u)) - uint32_t(i);
    advance();
  }
  state_[0] = 0x80000000u;
}

void PythonRandom::refill() {
  for (int i = 0; i < kSize; ++i) {
    const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
    state_[i] = state_[(i + 397) % kSize] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
  }
  next_ = 0;
}

uint32_t PythonRandom::next_u32() {
  if (next_ == kSize) refill();
  uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

uint32_t PythonRandom::below(uint32_t n) {
  const int bits = std::bit_width(n);
  uint32_t r;
  do {
    r = next_u32() >> (32 - bits);
  } while (r >= n);
  return r;
}

double PythonRandom::uniform() {
  const uint32_t a = next_u32() >> 5, b = next_u32() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

std::vector<std::string> make_prompts(const Workload& workload) {
  PythonRandom random(workload.seed);
  const auto words = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) {
      if (i) text += ' ';
      text += kCommonWords[random.below(std::size(kCommonWords))];
    }
    return text;
  };
  const std::string shared = words(workload.shared_prefix);
  std::vector<std::string> prompts;
  for (int i = 0; i < workload.requests; ++i) {
    std::string own = words(workload.prompt_tokens - workload.shared_prefix);
    prompts.push_back(shared.empty() || own.empty() ? shared + own : shared + " " + own);
  }
  return prompts;
}

std::vector<double> poisson_arrivals(int requests, double rate, uint64_t seed) {
  PythonRandom random(seed);
  std::vector<double> times;
  double now = 0;
  for (int i = 0; i < requests; ++i) {
    times.push_back(now);
    now += -std::log(1.0 - random.uniform()) / rate;
  }
  return times;
}

}  // namespace gapless
