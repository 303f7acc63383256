// Times of ops on the real CPU stream: what `bench kernels` and `bench attention` measure with.
#pragma once

#include <functional>

#include "device/cpu/cpu_device.h"

namespace gapless {

// One team of `threads` workers. Blocks; one thread at a time.
class OpTimer {
 public:
  explicit OpTimer(int threads) : device_(threads), stream_(device_.create_stream()) {}
  Device& device() { return device_; }

  // push(ops, i) appends op number i, i = 0, 1, ... Ops follow one another in one step; the best of five
  // rounds of 20 ms or more, in seconds per op: other processes can only make a round slower.
  double best_seconds(const std::function<void(OpList&, int64_t)>& push);
  // Of an op that does nothing, with a chunk for every worker.
  double empty_op();

 private:
  CpuDevice device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace gapless
