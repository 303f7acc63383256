// What every device must do, run over each registered device with several numbers of workers.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "device/registry.h"

namespace gapless {
namespace {

using namespace std::chrono_literals;

// --- ops ---

void sleep_us(int us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Every chunk counts itself, without atomics: a chunk that ran twice at once is a race that ThreadSanitizer
// sees.
struct CountParams {
  int32_t* runs;
  int32_t chunks;
};
int32_t count_chunks(const CountParams& p) {
  return p.chunks;
}
void count_run(const CountParams& p, int32_t chunk, OpContext&) {
  ++p.runs[chunk];
}

// to[i] = from[n - 1 - i] + 1 for the chunk's share: reads what other workers wrote in the op before.
struct ReverseParams {
  const int64_t* from;
  int64_t* to;
  int32_t n, per_chunk;
  uint32_t delay_seed;  // 0: none
};
int32_t reverse_chunks(const ReverseParams& p) {
  return (p.n + p.per_chunk - 1) / p.per_chunk;
}
void reverse_run(const ReverseParams& p, int32_t chunk, OpContext&) {
  if (p.delay_seed != 0 && (p.delay_seed * 2654435761u + uint32_t(chunk) * 40503u) % 11 == 0) sleep_us(100);
  const int32_t end = std::min(p.n, (chunk + 1) * p.per_chunk);
  for (int32_t i = chunk * p.per_chunk; i < end; ++i) p.to[i] = p.from[p.n - 1 - i] + 1;
}

// Appends its number to a log: one chunk per op, so the log is the order of ops.
struct LogParams {
  std::vector<int>* log;
  int number, delay_us;
};
int32_t one_chunk(const LogParams&) {
  return 1;
}
void log_run(const LogParams& p, int32_t, OpContext&) {
  if (p.delay_us > 0) sleep_us(p.delay_us);
  p.log->push_back(p.number);
}

struct StoreParams {
  int32_t* to;
  int32_t value;
};
int32_t store_chunks(const StoreParams&) {
  return 1;
}
void store_run(const StoreParams& p, int32_t, OpContext&) {
  *p.to = p.value;
}

// As many chunks as device memory says.
struct DynamicParams {
  const int32_t* chunks;
  int32_t* runs;
};
int32_t dynamic_chunks(const DynamicParams& p) {
  return *p.chunks;
}
void dynamic_run(const DynamicParams& p, int32_t chunk, OpContext&) {
  ++p.runs[chunk];
}

struct FailParams {
  int32_t chunks, failing_chunk;
  bool by_throwing;
};
int32_t fail_chunks(const FailParams& p) {
  return p.chunks;
}
void fail_run(const FailParams& p, int32_t chunk, OpContext& context) {
  if (chunk < p.failing_chunk) return;
  if (p.by_throwing) throw std::runtime_error("thrown by an op");
  context.fail(Status::internal("chunk {} failed", chunk));
}

// Blocks its worker until the gate opens.
struct GateParams {
  std::atomic<bool>* open;
};
int32_t gate_chunks(const GateParams&) {
  return 1;
}
void gate_run(const GateParams& p, int32_t, OpContext&) {
  while (!p.open->load()) sleep_us(50);
}

struct ScratchParams {
  std::atomic<int>* bad;
  int workers;
};
int32_t scratch_chunks(const ScratchParams&) {
  return 64;
}
void scratch_run(const ScratchParams& p, int32_t chunk, OpContext& c) {
  const bool shape_ok = c.worker >= 0 && c.worker < p.workers && c.scratch.size() == kOpScratchBytes &&
                        reinterpret_cast<uintptr_t>(c.scratch.data()) % 64 == 0;
  std::memset(c.scratch.data(), chunk, c.scratch.size());
  std::this_thread::yield();  // another chunk on the same scratch would overwrite it now
  const std::byte want{uint8_t(chunk)};
  if (!shape_ok || c.scratch.front() != want || c.scratch.back() != want) p.bad->fetch_add(1);
}

// --- fixture ---

struct Case {
  std::string device;
  int threads;
};

class DeviceConformance : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Device> make() {
    auto device = make_device(GetParam().device, {.threads = GetParam().threads});
    CHECK(device.is_ok(), "{}", device.status().message());
    return std::move(device).value();
  }
  template <class T>
  Buffer array(size_t n) {
    return device_->allocate(n * sizeof(T), MemoryKind::kDevice).value();
  }

  std::unique_ptr<Device> device_ = make();
  std::unique_ptr<Stream> stream_ = device_->create_stream();
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& device : known_devices())
    for (int threads : {1, 2, 3, 5})
      if (threads == 1 || device != "sim") all.push_back({device, threads});  // sim: always one worker
  return all;
}
INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.device + "_" + std::to_string(info.param.threads);
});

// --- order, chunks, visibility ---

TEST_P(DeviceConformance, RunsStepsAndOpsInOrder) {
  std::vector<int> log;
  std::vector<std::shared_ptr<Event>> events;
  for (int step = 0; step < 50; ++step) {
    auto ops = stream_->new_ops();
    for (int op = 0; op < 7; ++op)
      ops->push<one_chunk, log_run>("log",
                                    LogParams{&log, step * 7 + op, (step * 7 + op) % 13 == 0 ? 50 : 0});
    events.push_back(stream_->submit(std::move(ops)));
  }
  EXPECT_TRUE(events.back()->wait().is_ok());
  for (const auto& event : events) EXPECT_TRUE(event->ready());  // in order
  std::vector<int> expected(350);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(log, expected);
}

TEST_P(DeviceConformance, RunsEachChunkOnce) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<int32_t>> runs(random() % 30);
    auto ops = stream_->new_ops();
    for (auto& r : runs) {
      const uint32_t kind = random() % 4;  // 0, 1, a few or many chunks
      r.resize(kind == 0 ? 0 : kind == 1 ? 1 : kind == 2 ? random() % 8 : random() % 3000);
      ops->push<count_chunks, count_run>("count", CountParams{r.data(), int32_t(r.size())});
    }
    EXPECT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
    for (const auto& r : runs) EXPECT_EQ(r, std::vector<int32_t>(r.size(), 1));
  }
}

TEST_P(DeviceConformance, StepsWithoutWorkComplete) {
  EXPECT_TRUE(stream_->submit(stream_->new_ops())->wait().is_ok());
  auto ops = stream_->new_ops();
  ops->push<count_chunks, count_run>("count", CountParams{nullptr, 0});
  EXPECT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
  EXPECT_TRUE(stream_->submit(stream_->new_ops())->wait().is_ok());
}

TEST_P(DeviceConformance, AnOpSeesWhatEarlierOpsWrote) {
  constexpr int32_t kN = 5000, kOps = 40;
  const Buffer a = array<int64_t>(kN), b = array<int64_t>(kN);
  for (int32_t per_chunk : {1, 7, 640, kN}) {
    for (int32_t i = 0; i < kN; ++i) a.as<int64_t>()[i] = i;
    auto ops = stream_->new_ops();
    for (int op = 0; op < kOps; ++op) {
      const Buffer &from = op % 2 ? b : a, &to = op % 2 ? a : b;
      ops->push<reverse_chunks, reverse_run>(
          "reverse", ReverseParams{from.as<int64_t>(), to.as<int64_t>(), kN, per_chunk, 0});
    }
    ASSERT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
    for (int32_t i = 0; i < kN; ++i) ASSERT_EQ(a.as<int64_t>()[i], i + kOps) << "element " << i;
  }
}

TEST_P(DeviceConformance, ChunkCountsMayDependOnEarlierOps) {
  const Buffer count = array<int32_t>(1), runs = array<int32_t>(100);
  auto ops = stream_->new_ops();
  for (int32_t n : {0, 1, 100, 3, 0, 50}) {
    ops->push<store_chunks, store_run>("store", StoreParams{count.as<int32_t>(), n});
    ops->push<dynamic_chunks, dynamic_run>("dynamic", DynamicParams{count.as<int32_t>(), runs.as<int32_t>()});
  }
  ASSERT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
  for (int32_t i = 0; i < 100; ++i)
    EXPECT_EQ(runs.as<int32_t>()[i], (i < 1) + (i < 100) + (i < 3) + (i < 50)) << "chunk " << i;
}

TEST_P(DeviceConformance, WorkersHaveTheirOwnScratch) {
  EXPECT_EQ(stream_->workers(), GetParam().threads);
  std::atomic<int> bad{0};
  auto ops = stream_->new_ops();
  for (int i = 0; i < 3; ++i)
    ops->push<scratch_chunks, scratch_run>("scratch", ScratchParams{&bad, stream_->workers()});
  EXPECT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
  EXPECT_EQ(bad.load(), 0);
}

// --- events, submission ---

TEST_P(DeviceConformance, SubmitDoesNotWaitAndEventsTellCompletion) {
  std::atomic<bool> open{false};
  auto ops = stream_->new_ops();
  ops->push<gate_chunks, gate_run>("gate", GateParams{&open});
  const auto first = stream_->submit(std::move(ops));
  std::vector<std::shared_ptr<Event>> later;
  for (int i = 0; i < 100; ++i) later.push_back(stream_->submit(stream_->new_ops()));
  EXPECT_FALSE(first->ready());
  EXPECT_FALSE(later.back()->ready());

  std::atomic<int> woken{0};
  std::vector<std::thread> waiters;
  for (const auto& event : {first, later[0], later[50], later[99]})
    waiters.emplace_back([&woken, event] {
      EXPECT_TRUE(event->wait().is_ok());
      EXPECT_TRUE(event->ready());
      woken.fetch_add(1);
    });
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(woken.load(), 0);
  open.store(true);
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(woken.load(), 4);
}

TEST_P(DeviceConformance, OnSetIsCalledOnceAfterReady) {
  std::atomic<bool> open{false};
  std::atomic<int> calls{0}, calls_when_ready{0};
  auto ops = stream_->new_ops();
  ops->push<gate_chunks, gate_run>("gate", GateParams{&open});
  const auto event = stream_->submit(std::move(ops));
  event->on_set([&](const Status&) {
    calls_when_ready.fetch_add(event->ready());
    calls.fetch_add(1);
  });
  EXPECT_EQ(calls.load(), 0);
  open.store(true);
  EXPECT_TRUE(event->wait().is_ok());
  stream_->synchronize();
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(calls_when_ready.load(), 1);

  const auto done = stream_->submit(stream_->new_ops());
  EXPECT_TRUE(done->wait().is_ok());
  int at_once = 0;
  done->on_set([&](const Status&) { ++at_once; });
  EXPECT_EQ(at_once, 1);
}

TEST_P(DeviceConformance, OnSetMaySubmit) {
  std::vector<int> log;
  std::shared_ptr<Event> second;
  std::atomic<bool> open{false};
  auto ops = stream_->new_ops();
  ops->push<gate_chunks, gate_run>("gate", GateParams{&open});
  const auto first = stream_->submit(std::move(ops));
  HostEvent submitted;
  first->on_set([&](const Status&) {
    auto more = stream_->new_ops();
    more->push<one_chunk, log_run>("log", LogParams{&log, 7, 0});
    second = stream_->submit(std::move(more));
    submitted.set();
  });
  open.store(true);
  EXPECT_TRUE(submitted.wait().is_ok());
  EXPECT_TRUE(second->wait().is_ok());
  EXPECT_EQ(log, std::vector<int>{7});
}

TEST_P(DeviceConformance, SynchronizeWaitsForEverythingSubmitted) {
  std::vector<int> log;
  for (int i = 0; i < 20; ++i) {
    auto ops = stream_->new_ops();
    ops->push<one_chunk, log_run>("log", LogParams{&log, i, 200});
    (void)stream_->submit(std::move(ops));
  }
  stream_->synchronize();
  EXPECT_EQ(log.size(), 20u);
  stream_->synchronize();  // nothing to wait for
}

TEST_P(DeviceConformance, OpListsComeBackClearedWithTheEvent) {
  auto ops = stream_->new_ops();
  std::vector<int> log;
  const OpList* const address = ops.get();
  for (int i = 0; i < 5000; ++i)  // several blocks of parameters
    ops->push<one_chunk, log_run>("log", LogParams{&log, i, 0});
  EXPECT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
  auto again = stream_->new_ops();
  EXPECT_EQ(again.get(), address);
  EXPECT_TRUE(again->ops().empty());
  for (int i = 5000; i < 10000; ++i) again->push<one_chunk, log_run>("log", LogParams{&log, i, 0});
  EXPECT_TRUE(stream_->submit(std::move(again))->wait().is_ok());
  ASSERT_EQ(log.size(), 10000u);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(log[size_t(i)], i);
}

TEST_P(DeviceConformance, StreamsAreIndependent) {
  const auto other = device_->create_stream();
  std::atomic<bool> open{false};
  auto blocked = stream_->new_ops();
  blocked->push<gate_chunks, gate_run>("gate", GateParams{&open});
  const auto first = stream_->submit(std::move(blocked));
  std::vector<int> log;
  auto ops = other->new_ops();
  ops->push<one_chunk, log_run>("log", LogParams{&log, 1, 0});
  EXPECT_TRUE(other->submit(std::move(ops))->wait().is_ok());
  EXPECT_EQ(log.size(), 1u);
  EXPECT_FALSE(first->ready());
  open.store(true);
  EXPECT_TRUE(first->wait().is_ok());
}

TEST_P(DeviceConformance, TwoDevicesInOneProcess) {
  const auto second = make();
  const auto other = second->create_stream();
  const Buffer memory = second->allocate(64, MemoryKind::kDevice).value();
  auto a = stream_->new_ops(), b = other->new_ops();
  const Buffer mine = array<int32_t>(1);
  a->push<store_chunks, store_run>("store", StoreParams{mine.as<int32_t>(), 1});
  b->push<store_chunks, store_run>("store", StoreParams{memory.as<int32_t>(), 2});
  const auto ea = stream_->submit(std::move(a)), eb = other->submit(std::move(b));
  EXPECT_TRUE(ea->wait().is_ok());
  EXPECT_TRUE(eb->wait().is_ok());
  EXPECT_EQ(*mine.as<int32_t>(), 1);
  EXPECT_EQ(*memory.as<int32_t>(), 2);
}

TEST_P(DeviceConformance, DestructionCompletesQueuedSteps) {
  std::vector<int> log;
  std::vector<std::shared_ptr<Event>> events;
  for (int i = 0; i < 20; ++i) {
    auto ops = stream_->new_ops();
    ops->push<one_chunk, log_run>("log", LogParams{&log, i, 100});
    events.push_back(stream_->submit(std::move(ops)));
  }
  stream_.reset();
  EXPECT_EQ(log.size(), 20u);
  for (const auto& event : events) {
    EXPECT_TRUE(event->ready());
    EXPECT_TRUE(event->wait().is_ok());
  }
}

// --- failures ---

TEST_P(DeviceConformance, AFailedStepIsContained) {
  for (const bool by_throwing : {false, true}) {
    std::vector<int> log;
    auto make_step = [&](int number, bool fails) {
      auto ops = stream_->new_ops();
      ops->push<one_chunk, log_run>("log", LogParams{&log, number, 0});
      if (fails) ops->push<fail_chunks, fail_run>("breaks", FailParams{9, 4, by_throwing});
      ops->push<one_chunk, log_run>("log", LogParams{&log, number + 1, 0});
      return stream_->submit(std::move(ops));
    };
    const auto before = make_step(0, false), failing = make_step(10, true), after = make_step(20, false);
    const Status status = failing->wait();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    // The first of several failing chunks wins, and which is first depends on the workers.
    if (by_throwing)
      EXPECT_EQ(status.message(), "op breaks threw: thrown by an op");
    else
      EXPECT_TRUE(status.message().ends_with("failed")) << status.message();
    EXPECT_TRUE(before->wait().is_ok());
    EXPECT_TRUE(after->wait().is_ok());
    EXPECT_EQ(log, (std::vector<int>{0, 1, 10, 20, 21}));
  }
}

// --- memory ---

TEST_P(DeviceConformance, MemoryIsZeroedAndAligned) {
  for (MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kWeights, MemoryKind::kHostResult}) {
    for (size_t bytes : {size_t{1}, size_t{64}, size_t{4097}, size_t{5} << 20}) {
      for (int round = 0; round < 2; ++round) {  // the second may get memory that was used before
        const Buffer buffer = device_->allocate(bytes, kind).value();
        ASSERT_EQ(buffer.bytes(), bytes);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer.as<char>()) % 64, 0u);
        for (size_t i = 0; i < bytes; i += i + 64 < bytes ? 61 : 1) ASSERT_EQ(buffer.as<char>()[i], 0);
        std::memset(buffer.as<char>(), 0xa5, bytes);
      }
    }
  }
}

TEST_P(DeviceConformance, TooMuchMemoryIsAnErrorThatNamesTheSize) {
  const auto result = device_->allocate(size_t{1} << 60, MemoryKind::kDevice);
  ASSERT_FALSE(result.is_ok());
  EXPECT_NE(result.status().message().find(std::to_string(size_t{1} << 60)), std::string::npos)
      << result.status().message();
}

TEST_P(DeviceConformance, CopiesBothWays) {
  for (size_t bytes : {size_t{1}, size_t{1000}, size_t{256} << 10, (size_t{1} << 20) + 13}) {
    const Buffer device = device_->allocate(bytes, MemoryKind::kDevice).value();
    const Buffer host = device_->allocate(bytes, MemoryKind::kHostResult).value();
    std::vector<char> source(bytes);
    for (size_t i = 0; i < bytes; ++i) source[i] = char(i * 31 + 7);
    auto ops = stream_->new_ops();
    device_->push_copy(*ops, device.as<char>(), source.data(), bytes);
    device_->push_copy(*ops, host.as<char>(), device.as<char>(), bytes);
    ASSERT_TRUE(stream_->submit(std::move(ops))->wait().is_ok());
    EXPECT_EQ(std::memcmp(host.as<char>(), source.data(), bytes), 0) << bytes;
  }
}

// --- stress ---

// Steps of random ops with random delays, up to three in flight, and random pauses of the submitter: a chain
// of values tells that no chunk was lost, repeated or run before its inputs.
TEST_P(DeviceConformance, StressWithDelays) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr int32_t kN = 512;
  const Buffer a = array<int64_t>(kN), b = array<int64_t>(kN);
  int64_t total_ops = 0;
  std::vector<std::shared_ptr<Event>> events;
  for (int step = 0; step < 120; ++step) {
    auto ops = stream_->new_ops();
    for (uint32_t i = 0, n = random() % 12; i < n; ++i, ++total_ops) {
      const Buffer &from = total_ops % 2 ? b : a, &to = total_ops % 2 ? a : b;
      ops->push<reverse_chunks, reverse_run>(
          "reverse", ReverseParams{from.as<int64_t>(), to.as<int64_t>(), kN, int32_t(1 + random() % 200),
                                   random() % 3 ? 0 : uint32_t(random() | 1)});
    }
    events.push_back(stream_->submit(std::move(ops)));
    if (events.size() > 2) {
      ASSERT_TRUE(events[events.size() - 3]->wait().is_ok());
    }
    if (random() % 8 == 0) sleep_us(int(random() % 400));
  }
  stream_->synchronize();
  const Buffer& last = total_ops % 2 ? b : a;
  for (int32_t i = 0; i < kN; ++i) ASSERT_EQ(last.as<int64_t>()[i], total_ops) << "element " << i;
}

// --- registry ---

TEST(DeviceRegistry, UnknownNamesListTheKnownOnes) {
  const auto result = make_device("tpu", {});
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(result.status().message().find("'tpu'"), std::string::npos);
  for (const auto& name : known_devices()) EXPECT_NE(result.status().message().find(name), std::string::npos);
  EXPECT_FALSE(make_device("", {}).is_ok());
  EXPECT_FALSE(make_device("cpu:fast", {}).is_ok());
  EXPECT_FALSE(make_device("cpu", {.threads = -1}).is_ok());
  EXPECT_FALSE(make_device("cpu", {.threads = 1'000'000}).is_ok());
}

TEST(DeviceRegistry, DefaultThreadsAreAtLeastOne) {
  const auto device = make_device("cpu", {});
  ASSERT_TRUE(device.is_ok());
  EXPECT_EQ(device.value()->name(), "cpu");
  EXPECT_GE(device.value()->create_stream()->workers(), 1);
}

TEST(HostEvent, CarriesItsStatus) {
  HostEvent event;
  EXPECT_FALSE(event.ready());
  event.set(Status::internal("lost"));
  EXPECT_TRUE(event.ready());
  EXPECT_EQ(event.wait().message(), "lost");
  EXPECT_EQ(event.wait().message(), "lost");
}

}  // namespace
}  // namespace gapless
