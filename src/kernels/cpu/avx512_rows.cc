#include "kernels/cpu/vec_avx512.h"
// The lanes come first.
#include "kernels/cpu/rows-inl.h"

namespace gapless {

constinit const RowBodies kAvx512Rows = kRows;

}  // namespace gapless
