#include "kernels/roof.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/check.h"
#include "kernels/cpu/roof_bodies.h"
#include "kernels/isa.h"

namespace gapless {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// CPU time of the calling thread.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

constexpr int kRounds = 3;
constexpr double kRoundSeconds = 0.03, kMaxSeconds = 0.6;
constexpr double kUndisturbed = 0.99;  // of a round, each thread had a core

struct RoundPart {  // one thread's
  double rate = 0, had_core = 0;
};

// work(thread) does a piece of about 100 us and returns how much that was. The best amount per second, all
// threads together, of at least kRounds rounds; more, for at most kMaxSeconds, until there are kRounds in
// which no other process took a core from them. By the clock: on a starved machine a round may take a second.
template <class Work>
double best_rate(int threads, const Work& work) {
  std::vector<RoundPart> parts((size_t(threads)));
  double best = 0;
  int rounds = 0, undisturbed = 0;
  std::atomic<bool> go_on = true;
  const auto first_begin = Clock::now();
  // Once all threads have done a round: on one of them, the others wait.
  const auto end_round = [&]() noexcept {
    double sum = 0, had_core = 1;
    for (const RoundPart& part : parts) sum += part.rate, had_core = std::min(had_core, part.had_core);
    best = std::max(best, sum);
    undisturbed += had_core >= kUndisturbed;
    go_on = ++rounds < kRounds || (undisturbed < kRounds && seconds_since(first_begin) < kMaxSeconds);
  };
  std::barrier start(threads);
  std::barrier end(threads, end_round);
  const auto body = [&](int thread) {
    while (go_on) {
      start.arrive_and_wait();
      const auto begin = Clock::now();
      const double cpu_begin = cpu_seconds();
      double amount = 0, seconds = 0;
      while (seconds < kRoundSeconds) {
        amount += work(thread);
        seconds = seconds_since(begin);
      }
      parts[size_t(thread)] = {amount / seconds, (cpu_seconds() - cpu_begin) / seconds};
      end.arrive_and_wait();
    }
  };
  std::vector<std::jthread> team;
  for (int i = 1; i < threads; i++) team.emplace_back(body, i);
  body(0);
  return best;
}

// For CPUs without a table of their own: what the compiler makes of plain loops, in the first-level cache.
void plain_int8(int64_t n) {
  alignas(64) static thread_local int8_t a[4096], b[4096];
  for (int64_t i = 0; i < n; i++) {
    int32_t sum = 0;
    for (int j = 0; j < 4096; j++) sum += a[j] * b[j];
    asm volatile("" ::"r"(sum), "r"(a), "r"(b) : "memory");
  }
}
void plain_fma(int64_t n) {
  alignas(64) static thread_local float a[1024], b[1024];
  for (int64_t i = 0; i < n; i++) {
    for (int j = 0; j < 1024; j++) a[j] = a[j] * b[j] + b[j];
    asm volatile("" ::"r"(a), "r"(b) : "memory");
  }
}
void plain_read(const std::byte* p, size_t bytes) {
  uint64_t sum[4] = {};
  for (const std::byte* end = p + bytes; p < end; p += 64)
    for (int i = 0; i < 4; i++) {
      uint64_t words[2];
      std::memcpy(words, p + 16 * i, 16);
      sum[i] += words[0] ^ words[1];
    }
  asm volatile("" ::"r"(sum[0] + sum[1] + sum[2] + sum[3]));
}
constexpr RoofBodies kPlainRoof = {plain_int8, 2.0 * 4096, plain_fma, 2.0 * 1024, plain_read};

const RoofBodies& roof_bodies() {
#if defined(GAPLESS_X86_KERNELS)
  if (best_isa() == Isa::kAvx512) return kAvx512Roof;
  if (best_isa() == Isa::kAvx2) return kAvx2Roof;
#elif defined(GAPLESS_NEON_KERNELS)
  if (best_isa() == Isa::kNeon) return kNeonRoof;
#endif
  return kPlainRoof;
}

// Repeats of one piece: `once` repeats take about 100 us.
template <class Body>
double arithmetic(int threads, Body body, double amount) {
  const auto begin = Clock::now();
  constexpr int64_t kProbe = 1000;
  body(kProbe);
  const int64_t n = std::max<int64_t>(1, int64_t(kProbe * 100e-6 / std::max(1e-9, seconds_since(begin))));
  return best_rate(threads,
                   [&](int) {
                     body(n);
                     return double(n) * amount;
                   }) /
         1e9;
}

// Of a cyclic walk a part stays in the last-level cache: a thread that walks through twice its size seems to
// read 8 % faster than memory gives, so this one is longer than what its callers' loops need.
double read_bandwidth(int threads, const RoofBodies& bodies) {
  constexpr size_t kHugePage = size_t{2} << 20, kPiece = size_t{1} << 20;
  static_assert(kPiece % RoofBodies::kReadStep == 0);
  const size_t bytes = std::min(4 * bytes_beyond_cache(), size_t{512} << 20) / kHugePage * kHugePage;
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes)), std::free);
  CHECK(memory != nullptr, "no memory for {} bytes", bytes);
#if defined(MADV_HUGEPAGE)
  madvise(memory.get(), bytes, MADV_HUGEPAGE);  // with 4 KB pages the walks are measured too
#endif
  std::memset(memory.get(), 1, bytes);
  // Each thread walks through its own part, on and on.
  const size_t pieces = std::max<size_t>(1, bytes / kPiece / size_t(threads));
  std::vector<size_t> at(size_t(threads) * 8);  // a cache line each
  return best_rate(threads,
                   [&](int thread) {
                     size_t& next = at[size_t(thread) * 8];
                     bodies.read(memory.get() + ((size_t(thread) * pieces + next) * kPiece) % bytes, kPiece);
                     next = (next + 1) % pieces;
                     return double(kPiece);
                   }) /
         1e9;
}

}  // namespace

size_t bytes_beyond_cache() {
  long cache = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return std::clamp<size_t>(size_t(std::max(0L, cache)) * 4, size_t{128} << 20, size_t{512} << 20);
}

Roof measure_roof(int threads) {
  CHECK_GE(threads, 1);
  const RoofBodies& bodies = roof_bodies();
  return {.int8_gops = arithmetic(threads, bodies.int8, bodies.int8_operations),
          .f32_gflops = arithmetic(threads, bodies.fma, bodies.fma_operations),
          .read_gbps = read_bandwidth(threads, bodies)};
}

}  // namespace gapless
