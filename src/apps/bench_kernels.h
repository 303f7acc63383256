// Speed of one matmul on the real CPU stream: what `gapless bench kernels` measures.
#pragma once

#include <vector>

#include "apps/op_timer.h"
#include "kernels/ops.h"

namespace gapless {

struct MatmulShape {
  DType type;
  int32_t m, n, k;  // Y[m, n] = X[m, k] * W[n, k]; k is a multiple of the type's block
};

struct MatmulSpeed {
  double seconds;       // of one op, with what the stream needs around it
  double weight_bytes;  // packed, read once
  double
      error;  // root mean square of (y - exact y) over that of exact y; exact: double, with the same weights
};

// One piece of memory for all measurements. Blocks; one thread at a time.
class KernelBench {
 public:
  // Both must outlive it.
  KernelBench(OpTimer& timer, const OpTable& table) : timer_(timer), table_(table) {}
  // Before the first measurement. `largest`: bytes of the largest packed matrix to come. No memory for it: an
  // error that names the size.
  Status reserve(size_t largest);

  // Each op reads the next of as many copies of W as exceed the last-level cache.
  MatmulSpeed measure(const MatmulShape& shape);

 private:
  struct Operands;
  PackedMatrix pack(const MatmulShape& shape, int64_t& copies);
  double error(const MatmulShape& shape, const PackedMatrix& w, const Operands& operands) const;

  OpTimer& timer_;
  const OpTable& table_;
  Buffer memory_;
};

}  // namespace gapless
