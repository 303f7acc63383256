// What this process may use of the machine: cores (affinity mask, cgroup CPU quota) and memory (cgroup
// limit). Read once at start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gapless {

// Where Linux says it; tests point these at trees of their own.
struct SystemPaths {
  std::string cpu = "/sys/devices/system/cpu";
  std::string cgroup = "/sys/fs/cgroup";  // v2, v1 (one folder per controller) or both (v2 in `unified`)
  std::string proc_cgroup = "/proc/self/cgroup";
  std::string meminfo = "/proc/meminfo";
};

// Physical cores among `cpus`: hardware threads of one core count once. A CPU whose topology cannot be read
// counts as a core.
int physical_cores(const SystemPaths& paths, const std::vector<int>& cpus);

// CPUs of the calling thread's affinity mask, ascending.
std::vector<int> affinity_cpus();

// "max 100000" or "150000 100000" (cgroup v2 cpu.max) as a number of CPUs; nullopt: no limit, or not
// understood.
std::optional<double> parse_cpu_max(std::string_view text);

// The smallest CPU quota between this process's cgroup and the root, v1 and v2; nullopt: none.
std::optional<double> cgroup_cpu_quota(const SystemPaths& paths);

struct ThreadChoice {
  int threads;
  std::string reason;  // "2: physical cores in the affinity mask (4 logical), cgroup quota 2.0"
};
// Physical cores of the affinity mask, at most the CPU quota rounded up, at least 1. Workers are not pinned:
// the scheduler and HTTP threads share these cores, and a worker that may not move waits behind them.
ThreadChoice default_threads(const SystemPaths& paths, const std::vector<int>& cpus);
ThreadChoice default_threads(const SystemPaths& paths);  // of this thread's affinity mask

struct MemoryLimit {
  uint64_t bytes;
  std::string reason;  // "cgroup limit 8.0 GiB" or "physical memory 31.2 GiB"
};
// The smallest memory limit between this process's cgroup and the root (v1 and v2), and physical memory.
MemoryLimit cgroup_memory_limit(const SystemPaths& paths);

}  // namespace gapless
