#include "base/process_metrics.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/metrics.h"

namespace gapless {

namespace {

double seconds_of(const timeval& time) {
  return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
}

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// Since 1970. The kernel tells it as ticks since the machine started, in field 22 of a line whose field 2,
// the program's name in brackets, may hold spaces.
double start_time() {
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 22; field++) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  const double age = seconds_of(CLOCK_BOOTTIME) - ticks / double(sysconf(_SC_CLK_TCK));
  return seconds_of(CLOCK_REALTIME) - age;
}

double resident_bytes() {
  double all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * double(sysconf(_SC_PAGESIZE));
}

double max_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return double(limit.rlim_cur);
}

double open_descriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error) return max_descriptors();                       // none is left to look with
  return double(std::distance(begin(open), end(open)) - 1);  // without the one that looks
}

}  // namespace

std::string process_metrics_text() {
  static const double started = start_time();  // once: the clocks that it is made of drift apart
  MetricsRegistry now;
  now.counter("process_cpu_seconds_total", "CPU time of all threads.").add(cpu_seconds());
  now.gauge("process_resident_memory_bytes", "Memory in use, with the pages of the model file.")
      .set(resident_bytes());
  now.gauge("process_open_fds", "Open file descriptors.").set(open_descriptors());
  now.gauge("process_max_fds", "How many there may be.").set(max_descriptors());
  now.gauge("process_start_time_seconds", "When the process started, in seconds since 1970.").set(started);
  return now.prometheus_text();
}

}  // namespace gapless
