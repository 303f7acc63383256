#include "device/cpu/topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

namespace gapless {
namespace {

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  std::string result = text.str();
  while (!result.empty() && (result.back() == '\n' || result.back() == ' ')) result.pop_back();
  return result;
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Every folder between this process's cgroup and the root that may hold the files of `controller` ("cpu",
// "memory"). A container sees its own cgroup as the root of the mount although /proc/self/cgroup names the
// host's path: folders that do not exist are simply not read, and the root always is.
struct CgroupFolders {
  std::vector<std::string> v1, v2;
};

void add_with_parents(std::vector<std::string>& folders, const std::string& mount, std::string path) {
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(mount);
}

CgroupFolders cgroup_folders(const SystemPaths& paths, const std::string& controller) {
  CgroupFolders folders;
  for (const std::string& line : split(read_file(paths.proc_cgroup).value_or(""), '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) {
      add_with_parents(folders.v2, paths.cgroup, path);
      add_with_parents(folders.v2, paths.cgroup + "/unified", path);
      continue;
    }
    const auto names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), controller) == names.end()) continue;
    add_with_parents(folders.v1, paths.cgroup + "/" + controllers, path);
    if (controllers != controller) add_with_parents(folders.v1, paths.cgroup + "/" + controller, path);
  }
  return folders;
}

std::optional<double> v1_quota(const std::string& folder) {
  const auto quota = parse_int(read_file(folder + "/cpu.cfs_quota_us").value_or(""));
  const auto period = parse_int(read_file(folder + "/cpu.cfs_period_us").value_or(""));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return double(*quota) / double(*period);
}

void lower(std::optional<double>& least, std::optional<double> value) {
  if (value && (!least || *value < *least)) least = value;
}

uint64_t physical_memory(const SystemPaths& paths) {
  for (const std::string& line : split(read_file(paths.meminfo).value_or(""), '\n')) {
    if (!line.starts_with("MemTotal:")) continue;
    const size_t begin = line.find_first_of("0123456789"), end = line.find_first_not_of("0123456789", begin);
    if (begin == std::string::npos) break;
    if (const auto kib = parse_int(std::string_view(line).substr(begin, end - begin)))
      return uint64_t(*kib) << 10;
  }
  return std::numeric_limits<uint64_t>::max();
}

}  // namespace

int physical_cores(const SystemPaths& paths, const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    const std::string folder = fmt::format("{}/cpu{}/topology/", paths.cpu, cpu);
    auto siblings = read_file(folder + "core_cpus_list");
    if (!siblings) siblings = read_file(folder + "thread_siblings_list");
    cores.insert(siblings.value_or(fmt::format("cpu{}", cpu)));
  }
  return int(cores.size());
}

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  // The kernel refuses a set smaller than its own: grow until it fits.
  for (int size = 1024; size <= 1 << 20; size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size_t(size));
    const size_t bytes = CPU_ALLOC_SIZE(size_t(size));
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; ok && cpu < size; ++cpu)
      if (CPU_ISSET_S(size_t(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (ok) break;
  }
  return cpus;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto quota = parse_int(text.substr(0, space)), period = parse_int(text.substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return double(*quota) / double(*period);
}

std::optional<double> cgroup_cpu_quota(const SystemPaths& paths) {
  const CgroupFolders folders = cgroup_folders(paths, "cpu");
  std::optional<double> least;
  for (const auto& folder : folders.v2)
    lower(least, parse_cpu_max(read_file(folder + "/cpu.max").value_or("")));
  for (const auto& folder : folders.v1) lower(least, v1_quota(folder));
  return least;
}

ThreadChoice default_threads(const SystemPaths& paths, const std::vector<int>& cpus) {
  const int cores = std::max(1, physical_cores(paths, cpus));
  const std::optional<double> quota = cgroup_cpu_quota(paths);
  // A quota of 1.5 lets two threads run three quarters of the time: better than one that leaves a third of it
  // unused.
  const int threads = quota ? std::clamp(int(std::ceil(std::min(*quota, 1e6))), 1, cores) : cores;
  std::string reason = fmt::format("{}: ", threads);
  reason += threads < cores ? fmt::format("{} physical cores", cores) : std::string("physical cores");
  reason += fmt::format(" in the affinity mask ({} logical), ", cpus.size());
  reason += quota ? fmt::format("cgroup quota {:.1f}", *quota) : std::string("no cgroup quota");
  return {threads, reason};
}

ThreadChoice default_threads(const SystemPaths& paths) {
  return default_threads(paths, affinity_cpus());
}

MemoryLimit cgroup_memory_limit(const SystemPaths& paths) {
  const CgroupFolders folders = cgroup_folders(paths, "memory");
  std::optional<int64_t> least;
  auto take = [&](const std::string& path) {
    const auto value =
        parse_int(read_file(path).value_or(""));  // v2 writes "max" for none, v1 a number near 2^63
    if (value && *value > 0 && (!least || *value < *least)) least = value;
  };
  for (const auto& folder : folders.v2) take(folder + "/memory.max");
  for (const auto& folder : folders.v1) take(folder + "/memory.limit_in_bytes");
  const uint64_t physical = physical_memory(paths);
  const bool by_cgroup = least && uint64_t(*least) < physical;
  const uint64_t bytes = by_cgroup ? uint64_t(*least) : physical;
  return {bytes, fmt::format("{} {:.1f} GiB", by_cgroup ? "cgroup limit" : "physical memory",
                             double(bytes) / (1 << 30))};
}

}  // namespace gapless
