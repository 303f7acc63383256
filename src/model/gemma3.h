// Gemma 3, text only, all sizes.
#pragma once

#include <memory>

#include "model/registry.h"

namespace gapless {

Result<std::unique_ptr<Model>> load_gemma3(const GgufFile& file, Device& device, const LoadOptions& options);

}  // namespace gapless
