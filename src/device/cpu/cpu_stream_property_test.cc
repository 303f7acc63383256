// Random steps on teams of 1 to 64: every chunk of every op runs once, no op begins before the one before it
// has ended, and what a body is told of its neighbours is true. GAPLESS_SEED repeats a run.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "device/cpu/cpu_stream.h"
#include "device/op_profile.h"

namespace gapless {
namespace {

struct CountParams {
  std::atomic<uint8_t>* runs;  // of each chunk
  std::atomic<int32_t>* op;    // the one at work
  std::atomic<int64_t>* wrong;
  int32_t chunks, number;
  int32_t throws_at;  // a chunk, or -1
};
int32_t count_chunks(const CountParams& p) {
  return p.chunks;
}
void count_run(const CountParams& p, int32_t chunk, OpContext& c) {
  if (p.op->exchange(p.number) > p.number) p.wrong->fetch_add(1);
  const bool told_right =
      c.begin <= chunk && chunk < c.end && c.end <= p.chunks && c.end <= c.next && c.next <= p.chunks;
  if (!told_right || p.runs[chunk].fetch_add(1) != 0) p.wrong->fetch_add(1);
  if (chunk == p.throws_at) throw std::runtime_error("a chunk throws");
}

struct RandomStep {
  std::vector<std::unique_ptr<std::atomic<uint8_t>[]>> runs;
  std::vector<int32_t> chunks;
  std::atomic<int32_t> op{0};
  bool fails = false;
  std::shared_ptr<Event> event;

  void push(OpList& ops, int32_t n, int32_t throws_at, std::atomic<int64_t>& wrong) {
    runs.emplace_back(new std::atomic<uint8_t>[size_t(n) + 1]());
    chunks.push_back(n);
    fails |= throws_at >= 0;
    ops.push<count_chunks, count_run>(
        "count", CountParams{runs.back().get(), &op, &wrong, n, int32_t(chunks.size()) - 1, throws_at});
  }
  void submit_to(Stream& stream, std::mt19937_64& rng, std::atomic<int64_t>& wrong) {
    auto ops = stream.new_ops();
    for (uint64_t left = rng() % 30; left > 0; left--) {
      const uint64_t kind = rng() % 40;
      const auto n = int32_t(kind == 0 ? 0 : kind == 1 ? rng() % 20000 : kind < 12 ? 1 : rng() % 70);
      push(*ops, n, n > 0 && rng() % 300 == 0 ? int32_t(rng() % uint64_t(n)) : -1, wrong);
    }
    event = stream.submit(std::move(ops));
  }
  void check() {
    ASSERT_EQ(event->wait().is_ok(), !fails);
    if (fails) return;
    for (size_t i = 0; i < chunks.size(); i++)
      for (int32_t c = 0; c < chunks[i]; c++)
        ASSERT_EQ(runs[i][size_t(c)], 1) << "op " << i << ", chunk " << c << " of " << chunks[i];
  }
};

TEST(CpuStreamProperty, EveryChunkRunsOnceAlsoWhileAProfileIsSwitched) {
  const char* given = std::getenv("GAPLESS_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::mt19937_64 rng(seed);
  for (const int workers : {1, 2, 3, 8, 64}) {
    SCOPED_TRACE(::testing::Message() << "GAPLESS_SEED=" << seed << ", " << workers << " workers");
    OpProfile profile;
    std::atomic<int64_t> wrong{0};
    CpuStream stream(workers);
    for (int round = 0; round < 20; round++) {
      std::atomic<bool> stop{false};
      std::thread switcher([&] {
        while (!stop) {
          stream.set_profile(&profile);
          (void)profile.totals();
          stream.set_profile(nullptr);
          profile.reset();
        }
      });
      RandomStep steps[4];
      for (RandomStep& step : steps) step.submit_to(stream, rng, wrong);
      stream.synchronize();
      stop = true;
      switcher.join();
      for (RandomStep& step : steps) ASSERT_NO_FATAL_FAILURE(step.check());
    }
    ASSERT_EQ(wrong, 0);
  }
}

// As many chunks as an op may have, and small ops between: the word that is claimed from never carries.
TEST(CpuStreamProperty, TheMostChunksThereCanBe) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sixteen million chunks take a sanitizer half a minute";
#endif
  for (const int workers : {2, 64}) {
    CpuStream stream(workers);
    std::atomic<int64_t> wrong{0};
    RandomStep step;
    auto ops = stream.new_ops();
    step.push(*ops, kMaxOpChunks, -1, wrong);
    for (int i = 0; i < 500; i++) step.push(*ops, 1 + i % 3, -1, wrong);
    step.push(*ops, kMaxOpChunks, -1, wrong);
    step.event = stream.submit(std::move(ops));
    ASSERT_NO_FATAL_FAILURE(step.check());
    ASSERT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace gapless
