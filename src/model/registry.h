// The architectures this build knows, from one explicit list (registry.cc). Add a model: one file with a
// loader, and one row there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "model/gguf.h"
#include "model/model.h"

namespace gapless {

struct LoadOptions {
  int threads = 0;  // that repack weights; 0: one per CPU, at most 8
};

// Loads the weights into device memory. The file may be closed afterwards. Blocks for the whole load.
Result<std::unique_ptr<Model>> load_model(const GgufFile& file, Device& device,
                                          const LoadOptions& options = {});

std::vector<std::string> known_architectures();

// An error that lists the known ones when the file's architecture is not among them, or when the file is one
// part of several.
Status check_architecture(const GgufFile& file);

}  // namespace gapless
