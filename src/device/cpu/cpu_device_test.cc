// What the CPU device promises beyond the conformance test: stragglers, idle cost, wake-up, lazy memory,
// topology.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/testing/idle.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_stream.h"
#include "device/cpu/topology.h"

namespace gapless {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

struct NothingParams {
  int32_t chunks;
};
int32_t nothing_chunks(const NothingParams& p) {
  return p.chunks;
}
void nothing_run(const NothingParams&, int32_t, OpContext&) {}

void push_nothing(OpList& ops, int count, int32_t chunks) {
  for (int i = 0; i < count; ++i) ops.push<nothing_chunks, nothing_run>("nothing", NothingParams{chunks});
}

struct SpinParams {
  int us;
  int32_t chunks;
};
int32_t spin_chunks(const SpinParams& p) {
  return p.chunks;
}
void spin_run(const SpinParams& p, int32_t, OpContext&) {
  const auto end = Clock::now() + std::chrono::microseconds(p.us);
  while (Clock::now() < end) {
  }
}

template <class Done>
bool wait_until(Done done) {
  for (const auto end = Clock::now() + 30s; !done();) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(100us);
  }
  return true;
}

// The thread that takes this signal stays in its handler until it is let go.
std::atomic<bool> held{false}, let_go{false};
void hold(int) {
  held.store(true);
  const timespec ms{0, 1'000'000};
  while (!let_go.load()) nanosleep(&ms, nullptr);
}

struct HoldParams {
  std::atomic<pthread_t>* threads;  // of the two workers
  std::atomic<int>* arrived;
};
// Two chunks that wait for each other: both workers are in the step.
int32_t meet_chunks(const HoldParams&) {
  return 2;
}
void meet_run(const HoldParams& p, int32_t, OpContext& context) {
  p.threads[context.worker].store(pthread_self());
  p.arrived->fetch_add(1);
  wait_until([&] { return p.arrived->load() == 2; });
}
// One chunk: the other worker has none, and is taken away now.
int32_t hold_chunks(const HoldParams&) {
  return 1;
}
void hold_run(const HoldParams& p, int32_t, OpContext& context) {
  pthread_kill(p.threads[1 - context.worker].load(), SIGUSR1);
  wait_until([] { return held.load(); });
}

// One worker of two is taken away between two ops, in the middle of a step, and comes back only when this
// step and ten more are complete: the other one goes on alone. With a barrier over threads they would never
// complete.
TEST(CpuStream, AWorkerThatIsTakenAwayDelaysNobody) {
  if (kSanitized) GTEST_SKIP() << "sanitizers deliver signals late";
  held.store(false);
  let_go.store(false);
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = hold;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  {
    CpuStream stream(2);
    std::atomic<pthread_t> threads[2] = {};
    std::atomic<int> arrived{0};
    std::vector<std::shared_ptr<Event>> events;
    for (int step = 0; step < 11; ++step) {
      auto ops = stream.new_ops();
      if (step == 0) {
        ops->push<meet_chunks, meet_run>("meet", HoldParams{threads, &arrived});
        ops->push<hold_chunks, hold_run>("hold", HoldParams{threads, &arrived});
      }
      for (int i = 0; i < 100; ++i) ops->push<spin_chunks, spin_run>("spin", SpinParams{10, 4});
      events.push_back(stream.submit(std::move(ops)));
    }
    EXPECT_TRUE(wait_until([&] { return events.back()->ready(); }))
        << "the other worker waits for the one that is away";
    EXPECT_TRUE(held.load());
    let_go.store(true);
  }
  sigaction(SIGUSR1, &old, nullptr);
}

// A-OVL-12: an idle server costs less than 2 % of a core.
TEST(CpuStream, SleepsWhenIdle_A_OVL_12) {
  CpuStream stream(4), other(2);
  const auto work = [&] {
    auto ops = stream.new_ops();
    push_nothing(*ops, 100, 4);
    ASSERT_TRUE(stream.submit(std::move(ops))->wait().is_ok());
  };
  EXPECT_LT(testing::cpu_share_at_rest("device", 0.02, work), 0.02);
}

// Two threads that do nothing but wake each other: as fast as this machine wakes anyone now.
class Echo {
 public:
  ~Echo() { ask(-1); }
  void ask(int question) {
    question_.store(question);
    question_.notify_one();
  }
  void wait_for(int answer) {
    for (int seen; (seen = answer_.load()) != answer;) answer_.wait(seen);
  }

 private:
  std::atomic<int> question_{0}, answer_{0};
  std::jthread other_{[this] {
    for (int last = 0; last >= 0;) {
      question_.wait(last);
      last = question_.load();
      answer_.store(last);
      answer_.notify_one();
    }
  }};
};

// A-OVL-12: an idle server wakes up as fast as the kernel wakes threads: a step takes two such wakings in a
// row (the team, then the caller) and the second worker beside them. A team that looks for work every
// millisecond would take 25 times as long. The lower quartile of many in turns, since other programs may hold
// the cores.
TEST(CpuStream, WakesUpFast_A_OVL_12) {
  CpuStream stream(2);
  Echo echo;
  std::vector<double> took, plain;
  for (int i = 1; i <= 60; ++i) {
    std::this_thread::sleep_for(3ms);  // long enough for the team to be asleep
    const auto begin = Clock::now();
    echo.ask(i);
    echo.wait_for(i);
    plain.push_back(microseconds(Clock::now() - begin));
    std::this_thread::sleep_for(3ms);
    auto ops = stream.new_ops();
    push_nothing(*ops, 1, 2);
    const auto submitted = Clock::now();
    ASSERT_TRUE(stream.submit(std::move(ops))->wait().is_ok());
    took.push_back(microseconds(Clock::now() - submitted));
  }
  const auto quartile = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 4), v.end());
    return v[v.size() / 4];
  };
  const double step = quartile(took), echoed = quartile(plain);
  std::printf("asleep -> step of one op done: %.0f us; two threads that only wake each other: %.0f us\n",
              step, echoed);
  EXPECT_LT(step, 15 * echoed);
}

// `us` of work in each of `threads` chunks: what an op takes beyond that, in the best tenth of many steps.
double overhead_ns(int threads, int us) {
  constexpr int kOps = 300;
  CpuStream stream(threads);
  std::vector<double> ns;
  for (int i = 0; i < 50; ++i) {
    auto ops = stream.new_ops();
    for (int op = 0; op < kOps; ++op) {
      if (us == 0)
        ops->push<nothing_chunks, nothing_run>("nothing", NothingParams{threads});
      else
        ops->push<spin_chunks, spin_run>("spin", SpinParams{us, threads});
    }
    const auto begin = Clock::now();
    CHECK(stream.submit(std::move(ops))->wait().is_ok());
    ns.push_back(microseconds(Clock::now() - begin) * 1000 / kOps - us * 1000);
  }
  std::sort(ns.begin(), ns.end());
  return ns[ns.size() / 10];
}

// The target is well below 1 us per op when the cores are free; the bar leaves room for a machine that is
// busy with other things.
TEST(CpuStream, OverheadPerOp) {
  for (int threads : {1, 2}) {
    const double empty = overhead_ns(threads, 0), busy = overhead_ns(threads, 5);
    std::printf(
        "%d threads, per op of a step of 300: %.0f ns empty, %.0f ns beyond 5 us of work in each thread\n",
        threads, empty, busy);
    EXPECT_LT(empty, kSanitized ? 100'000 : 3'000);
  }
}

TEST(CpuStream, SteadyStateReusesItsLists) {
  CpuStream stream(2);
  std::vector<const OpList*> seen;
  std::shared_ptr<Event> previous;
  for (int i = 0; i < 200; ++i) {  // two in flight, as the overlap loop does
    auto ops = stream.new_ops();
    if (std::find(seen.begin(), seen.end(), ops.get()) == seen.end()) seen.push_back(ops.get());
    push_nothing(*ops, 20, 2);
    auto event = stream.submit(std::move(ops));
    if (previous) {
      ASSERT_TRUE(previous->wait().is_ok());
    }
    previous = std::move(event);
  }
  EXPECT_LE(seen.size(), 3u);
}

// --- memory ---

size_t resident_bytes(const Buffer& buffer) {
  const size_t page = 4096, pages = (buffer.bytes() + page - 1) / page;
  std::vector<unsigned char> in_core(pages);
  CHECK_EQ(mincore(buffer.as<void>(), buffer.bytes(), in_core.data()), 0);
  return page * size_t(std::count_if(in_core.begin(), in_core.end(), [](unsigned char c) { return c & 1; }));
}

TEST(CpuDevice, DeviceMemoryIsCommittedPageByPage) {
  CpuDevice device(1);
  const Buffer pool = device.allocate(size_t{64} << 20, MemoryKind::kDevice).value();
  EXPECT_EQ(resident_bytes(pool), 0u);
  for (size_t i = 0; i < 10; ++i) pool.as<char>()[i << 22] = 1;
  EXPECT_EQ(resident_bytes(pool), size_t{10} * 4096);
}

TEST(CpuDevice, APoolLargerThanMemoryCanBeAllocated) {
  CpuDevice device(1);
  const size_t bytes = 2 * cgroup_memory_limit(SystemPaths{}).bytes;
  if (kSanitized) GTEST_SKIP() << "sanitizers shadow the address space";
  const auto pool = device.allocate(bytes, MemoryKind::kDevice);
  ASSERT_TRUE(pool.is_ok()) << pool.status().message();
  pool.value().as<char>()[bytes - 1] = 1;
}

// --- topology ---

class Topology : public ::testing::Test {
 protected:
  Topology() {
    std::string name = (std::filesystem::temp_directory_path() / "topology_XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr, "{}", name);
    root_ = name;
    paths_ = {name + "/cpu", name + "/cgroup", name + "/proc_cgroup", name + "/meminfo"};
    write("meminfo", "MemFree:  1 kB\nMemTotal:       16777216 kB\nSwapTotal: 0 kB\n");
  }
  ~Topology() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const auto full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void core(int cpu, const std::string& siblings, const char* file = "core_cpus_list") {
    write(fmt::format("cpu/cpu{}/topology/{}", cpu, file), siblings + "\n");
  }

  std::filesystem::path root_;
  SystemPaths paths_;
};

TEST_F(Topology, HardwareThreadsOfACoreCountOnce) {
  for (int cpu = 0; cpu < 4; ++cpu) core(cpu, fmt::format("{},{}", cpu % 2, cpu % 2 + 2));
  EXPECT_EQ(physical_cores(paths_, {0, 1, 2, 3}), 2);
  EXPECT_EQ(physical_cores(paths_, {0, 2}), 1);
  EXPECT_EQ(physical_cores(paths_, {3}), 1);
}

TEST_F(Topology, OlderKernelsAndMissingFiles) {
  core(0, "0-1", "thread_siblings_list");
  core(1, "0-1", "thread_siblings_list");
  EXPECT_EQ(physical_cores(paths_, {0, 1}), 1);
  EXPECT_EQ(physical_cores(paths_, {6, 7}), 2);  // unknown: each its own
}

TEST_F(Topology, CpuMax) {
  EXPECT_EQ(parse_cpu_max("max 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_max(""), std::nullopt);
  EXPECT_EQ(parse_cpu_max("12x 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("0 100000"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("100000 0"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("100000"), std::nullopt);
}

TEST_F(Topology, QuotaOfVersion2IsTheSmallestUpToTheRoot) {
  write("proc_cgroup", "0::/kube/pod/app\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), std::nullopt);
  write("cgroup/kube/pod/app/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), std::nullopt);
  write("cgroup/kube/pod/cpu.max", "250000 100000\n");
  write("cgroup/kube/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 2.5);
}

TEST_F(Topology, QuotaOfVersion1) {
  write("proc_cgroup", "5:memory:/a\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/\n0::/\n");
  write("cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), std::nullopt);
  // In a container the mount's root is the container's own group.
  write("cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 0.5);
}

TEST_F(Topology, HybridHierarchy) {
  write("proc_cgroup", "1:cpu:/x\n0::/x\n");
  write("cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
  write("cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  write("cgroup/unified/x/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 3.0);
}

TEST_F(Topology, DefaultThreadsSayWhy) {
  for (int cpu = 0; cpu < 8; ++cpu) core(cpu, fmt::format("{},{}", cpu % 4, cpu % 4 + 4));
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  write("proc_cgroup", "0::/app\n");
  EXPECT_EQ(default_threads(paths_, all).threads, 4);
  EXPECT_EQ(default_threads(paths_, all).reason,
            "4: physical cores in the affinity mask (8 logical), no cgroup quota");
  EXPECT_EQ(default_threads(paths_, {0, 1, 4, 5}).threads, 2);
  write("cgroup/app/cpu.max", "150000 100000\n");
  EXPECT_EQ(default_threads(paths_, all).threads, 2);
  EXPECT_EQ(default_threads(paths_, all).reason,
            "2: 4 physical cores in the affinity mask (8 logical), cgroup quota 1.5");
  write("cgroup/app/cpu.max", "10000 100000\n");
  EXPECT_EQ(default_threads(paths_, all).threads, 1);
  EXPECT_EQ(default_threads(paths_, {}).threads, 1);
}

TEST_F(Topology, MemoryLimit) {
  EXPECT_EQ(cgroup_memory_limit(paths_).bytes, uint64_t{16} << 30);
  EXPECT_EQ(cgroup_memory_limit(paths_).reason, "physical memory 16.0 GiB");
  write("proc_cgroup", "4:memory:/job/1\n0::/job/1\n");
  write("cgroup/memory/job/1/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/job/1/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_limit(paths_).bytes, uint64_t{16} << 30);
  write("cgroup/memory/job/memory.limit_in_bytes", "4294967296\n");
  EXPECT_EQ(cgroup_memory_limit(paths_).bytes, uint64_t{4} << 30);
  EXPECT_EQ(cgroup_memory_limit(paths_).reason, "cgroup limit 4.0 GiB");
  write("cgroup/job/1/memory.max", "1073741824\n");
  EXPECT_EQ(cgroup_memory_limit(paths_).bytes, uint64_t{1} << 30);
}

TEST(TopologyHere, ThisMachineHasCoresAndMemory) {
  EXPECT_FALSE(affinity_cpus().empty());
  EXPECT_GE(default_threads(SystemPaths{}).threads, 1);
  EXPECT_LE(size_t(default_threads(SystemPaths{}).threads), affinity_cpus().size());
  EXPECT_GT(cgroup_memory_limit(SystemPaths{}).bytes, uint64_t{64} << 20);
  EXPECT_LT(cgroup_memory_limit(SystemPaths{}).bytes, uint64_t{1} << 50);
}

}  // namespace
}  // namespace gapless
