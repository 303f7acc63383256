#include "device/registry.h"

#include <array>
#include <string_view>

#include "device/cpu/cpu_device.h"
#include "device/cpu/topology.h"
#include "device/sim/sim_device.h"

namespace gapless {
namespace {

// More than any machine's cores, few enough that a mistyped value does not take the machine down.
constexpr int kMaxThreads = 1024;

Result<std::unique_ptr<Device>> make_cpu(const std::string& profile, const DeviceOptions& options) {
  if (!profile.empty()) return Status::invalid("device 'cpu' has no profiles, '{}' given", profile);
  const int threads = options.threads > 0 ? options.threads : default_threads(SystemPaths{}).threads;
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(threads));
}

// It has one worker, whatever the options say: what runs fast here is the machine that is simulated.
Result<std::unique_ptr<Device>> make_sim(const std::string& profile, const DeviceOptions&) {
  ASSIGN_OR_RETURN(SimProfile found, find_sim_profile(profile));
  return std::unique_ptr<Device>(std::make_unique<SimDevice>(SimDeviceOptions{.profile = std::move(found)}));
}

struct Row {
  std::string_view name;
  Result<std::unique_ptr<Device>> (*make)(const std::string& profile, const DeviceOptions& options);
};
constexpr std::array kDevices{Row{"cpu", make_cpu}, Row{"sim", make_sim}};

}  // namespace

std::vector<std::string> known_devices() {
  std::vector<std::string> names;
  for (const Row& row : kDevices) names.emplace_back(row.name);
  return names;
}

Result<std::unique_ptr<Device>> make_device(const std::string& spec, const DeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads)
    return Status::invalid("threads = {}, must be 0 (default) .. {}", options.threads, kMaxThreads)
        .with_param("threads");
  const size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon);
  const std::string profile = colon == std::string::npos ? "" : spec.substr(colon + 1);
  for (const Row& row : kDevices)
    if (row.name == name) return row.make(profile, options);
  return Status::invalid("unknown device '{}'; known: {}", name, fmt::join(known_devices(), ", "))
      .with_param("device");
}

}  // namespace gapless
