// A device in front of the simulated one that lets a Fault see and change each step between its ops.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "scheduler/sim_testing/fault.h"

namespace gapless::sim_testing {

class OpTap : public Device {
 public:
  OpTap(Device& device, Fault& fault) : device_(device), fault_(fault) {}
  const std::string& name() const override { return device_.name(); }
  Result<Buffer> allocate(size_t bytes, MemoryKind kind) override { return device_.allocate(bytes, kind); }
  std::unique_ptr<Stream> create_stream() override;
  void push_copy(OpList& ops, void* to, const void* from, size_t bytes) override {
    device_.push_copy(ops, to, from, bytes);
  }
  bool poisons() const override { return device_.poisons(); }
  void poison(void* data, size_t bytes) override { device_.poison(data, bytes); }

 private:
  Device& device_;
  Fault& fault_;
};

}  // namespace gapless::sim_testing
