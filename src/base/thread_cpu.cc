#include "base/thread_cpu.h"

#include <time.h>

#include <filesystem>
#include <fstream>

namespace gapless {

namespace {

// The kernel's own encoding of a thread's CPU clock (man 2 clock_gettime, "Dynamic clocks"; glibc's
// pthread_getcpuclockid makes the same from a pthread_t, which is not known here).
clockid_t cpu_clock_of(int tid) {
  constexpr unsigned kPerThread = 4, kScheduler = 2;
  return clockid_t((~unsigned(tid) << 3) | kPerThread | kScheduler);
}

}  // namespace

std::map<std::string, double> thread_cpu_seconds() {
  std::map<std::string, double> by_name;
  std::error_code error;  // a thread may end while the folder is read
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    timespec time;
    std::ifstream comm(entry.path() / "comm");
    if (!std::getline(comm, name)) continue;
    if (clock_gettime(cpu_clock_of(std::stoi(entry.path().filename())), &time) != 0) continue;
    name.erase(name.find_last_not_of("0123456789-") + 1);
    by_name[name] += double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
  }
  return by_name;
}

}  // namespace gapless
