// Simple quantisers from float32 to each GGUF block format, for files that tests write. Scales by minimum and
// maximum: not the best rounding, but every field of every format is used.
#pragma once

#include <span>

#include "model/testing/gguf_writer.h"

namespace gapless::testing {

// x.size() is a multiple of the type's block.
Bytes quantise(DType type, std::span<const float> x);

}  // namespace gapless::testing
