// The CPU as a device: memory is anonymous mappings, a stream is an in-order queue worked by a team of
// threads.
#pragma once

#include <string>

#include "device/device.h"

namespace gapless {

// Any thread may allocate and create streams. Streams and buffers do not refer to the device, and may outlive
// it.
class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads);  // threads >= 1, of each stream
  const std::string& name() const override { return name_; }
  // Address space only: pages are committed (zeroed, on the NUMA node of the toucher) when first written.
  // kDevice and kHostResult never get huge pages, even where the system gives them to all: a touched KV page
  // would commit 2 MB per layer, 120 MB for a 30-layer model with one request. kWeights ask for them: 60
  // instead of 46 GB/s read bandwidth measured on Zen 4.
  Result<Buffer> allocate(size_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> create_stream() override;
  void push_copy(OpList& ops, void* to, const void* from, size_t bytes) override;

 private:
  const std::string name_ = "cpu";
  const int threads_;
};

}  // namespace gapless
