// The shared state behind a ticket. Only workers (and test workers) include this.
#pragma once

#include <memory>

#include "device/device.h"
#include "worker/model_worker_batch.h"

namespace gapless {

struct LaunchState {
  virtual ~LaunchState() = default;
  // Reads the host result buffers. Called once, after copy_done completed with `status`.
  virtual BatchResult collect(Status status) = 0;

  uint64_t batch_id = 0;
  HostEvent launch_done;
  std::shared_ptr<Event> copy_done;  // set before the ticket is handed out
};

}  // namespace gapless
