// The GGUF writer under the names that tests use.
#pragma once

#include "model/gguf_writer.h"

namespace gapless::testing {

using Bytes = std::vector<std::byte>;
using gapless::GgufWriter;
using gapless::write_file;

}  // namespace gapless::testing
