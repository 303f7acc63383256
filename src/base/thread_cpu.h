// CPU time of this process's threads, by their names. Linux.
#pragma once

#include <map>
#include <string>

namespace gapless {

// Seconds of CPU time since each thread's start (its CLOCK_THREAD_CPUTIME_ID, read from outside); threads of
// one name are added up, a number at a name's end is left out. Threads that have ended are not in it. Any
// thread; some microseconds for each thread.
std::map<std::string, double> thread_cpu_seconds();

}  // namespace gapless
