// A seeded source of choices: the same on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace gapless::sim_testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  int32_t below(int32_t n) { return int32_t(engine_() % uint64_t(n)); }
  int32_t between(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool chance(int32_t percent) { return below(100) < percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(int32_t(values.size()))];
  }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[size_t(below(int32_t(values.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace gapless::sim_testing
