// Helpers of the kernels' tests: run an OpList on the spot, exactly sized buffers, random numbers with a
// printed seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/isa.h"

namespace gapless::testing {

enum class Order { kForward, kBackward, kFourThreads };
inline constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kFourThreads};

// Memory of exactly n elements, 64-byte aligned: an address sanitizer sees the first byte too many.
template <class T>
class Exact {
 public:
  explicit Exact(size_t n)
      : n_(n), data_(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64))) {
    std::fill_n(data_.get(), n, T{});
  }
  Exact(const Exact& other) : Exact(other.n_) { std::copy_n(other.data(), n_, data()); }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return n_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + n_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + n_; }
  bool operator==(const Exact& other) const {
    return n_ == other.n_ && std::memcmp(data(), other.data(), n_ * sizeof(T)) == 0;
  }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  size_t n_;
  std::unique_ptr<T, Free> data_;
};

// Scratch is filled with NaNs before each run, so that nobody relies on what is in it.
class OpRunner {
 public:
  void run(const OpList& ops, Order order = Order::kForward) {
    for (const Op& op : ops.ops()) {
      const int32_t chunks = op.chunks(op.params);
      std::atomic<int32_t> next{0};
      const auto work = [&](int worker) {
        Exact<std::byte>& scratch = scratch_[size_t(worker)];
        std::memset(scratch.data(), 0xff, scratch.size());
        OpContext context{.worker = worker, .scratch = {scratch.data(), scratch.size()}};
        for (int32_t i; (i = next.fetch_add(1)) < chunks;) {
          context.begin = order == Order::kBackward ? chunks - 1 - i : i;
          context.end = context.next = context.begin + 1;
          op.run(op.params, context.begin, context);
        }
      };
      std::vector<std::jthread> others;
      for (int worker = 1; order == Order::kFourThreads && worker < kWorkers; worker++)
        others.emplace_back(work, worker);
      work(0);
    }
  }

 private:
  static constexpr int kWorkers = 4;
  std::vector<Exact<std::byte>> scratch_ =
      std::vector<Exact<std::byte>>(kWorkers, Exact<std::byte>(kOpScratchBytes));
};

inline std::vector<Isa> fast_isas() {
  std::vector<Isa> isas;
  for (Isa isa : kIsas)
    if (isa != Isa::kReference && op_table(isa)) isas.push_back(isa);
  return isas;
}

class Random {
 public:
  Random()
      : seed_(std::random_device{}()),
        rng_(seed_),
        trace_(__FILE__, __LINE__, ::testing::Message() << "seed " << seed_) {}
  int32_t below(int32_t n) { return std::uniform_int_distribution<int32_t>(0, n - 1)(rng_); }
  int32_t between(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }
  float normal(float deviation = 1.f) { return std::normal_distribution<float>(0.f, deviation)(rng_); }
  template <class T>
  void fill_normal(T& values, float deviation = 1.f) {
    for (auto& v : values) v = normal(deviation);
  }
  std::vector<int32_t> permutation(int32_t n) {
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    return order;
  }
  std::mt19937& rng() { return rng_; }

 private:
  unsigned seed_;
  std::mt19937 rng_;
  ::testing::ScopedTrace trace_;
};

}  // namespace gapless::testing
