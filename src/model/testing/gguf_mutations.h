// Damaged headers for tests of the GGUF parser, and what reading one costs.
#pragma once

#include <chrono>
#include <cstddef>
#include <random>

#include "model/testing/gguf_writer.h"

namespace gapless::testing {

// Changes the first header_bytes of `file` in one of several ways: bits, whole numbers replaced by ones that
// parsers get wrong, bytes moved, or the end cut off.
void mutate_header(Bytes& file, size_t header_bytes, std::mt19937_64& random);
// The same in place and without changing the size: the range of changed bytes is returned, so that a large
// header can be restored.
struct ChangedBytes {
  size_t begin, end;
};
ChangedBytes overwrite_header(std::span<std::byte> header, std::mt19937_64& random);

// Bytes asked of operator new by the whole program since construction (freed ones too: an upper bound of the
// peak), and time.
class Cost {
 public:
  Cost();
  size_t allocated() const;
  double seconds() const;

 private:
  size_t allocated_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace gapless::testing
