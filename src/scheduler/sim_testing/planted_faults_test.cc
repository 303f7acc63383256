// The suite bites: each planted fault is caught, by a wrong answer, a broken law or a CHECK, within a stated
// number of seeds, and the same seeds pass without it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "scheduler/sim_testing/planted_faults.h"
#include "scheduler/sim_testing/rig.h"

namespace gapless::sim_testing {
namespace {

constexpr unsigned kChildSeconds = 60;

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR);) {
    if (n > 0) text.append(buffer, size_t(n));
  }
  return text;
}

// Runs in a child, which a CHECK may end. What was wrong, or empty.
std::string run_in_child(const Workload& workload, Fault& fault) {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  CHECK_GE(child, 0);
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    alarm(kChildSeconds);
    const std::string error = Rig(workload, Rig::Drive::kStepped, &fault).run_stepped();
    (void)!write(STDERR_FILENO, error.data(), error.size());
    _exit(error.empty() ? 0 : 1);
  }
  close(ends[1]);
  const std::string text = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return text.empty() ? fmt::format("ended by signal {}", WTERMSIG(status)) : text.substr(0, text.find('\n'));
}

class PlantedFaults : public ::testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaults, AreCaught) {
  const PlantedFault& planted = GetParam();
  int32_t first = 0, caught = 0;
  std::string how;
  for (int32_t seed = 1; seed <= planted.within; seed++) {
    const Workload workload = make_workload(uint64_t(seed), planted.flavour);
    Fault none;
    ASSERT_EQ(Rig(workload, Rig::Drive::kStepped, &none).run_stepped(), "") << "healthy, seed " << seed;
    const std::unique_ptr<Fault> fault = planted.make(workload);
    const std::string error = run_in_child(workload, *fault);
    if (error.empty()) continue;
    if (caught++ == 0) {
      first = seed;
      how = error;
    }
  }
  std::printf("%-28s caught by %3d of %3d seeds, first by %2d: %s\n", planted.name, caught, planted.within,
              first, how.c_str());
  EXPECT_GT(caught, 0) << planted.name;
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFaults, ::testing::ValuesIn(planted_faults()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gapless::sim_testing
