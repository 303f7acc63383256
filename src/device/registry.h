// The devices this build knows, from one explicit list (registry.cc). Add a device: a folder with the four
// interfaces, a row there, and it passes device_conformance_test, which runs over every row.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace gapless {

struct DeviceOptions {
  int threads = 0;  // worker threads of each stream, its leader included; 0: the default of cpu/topology.h
};

std::vector<std::string> known_devices();

// spec: a name of known_devices(), or "name:profile" for a device that has profiles. Everything that is wrong
// with it is in the Status.
Result<std::unique_ptr<Device>> make_device(const std::string& spec, const DeviceOptions& options);

}  // namespace gapless
