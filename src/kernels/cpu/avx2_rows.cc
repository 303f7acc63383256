#include "kernels/cpu/vec_avx2.h"
// The lanes come first.
#include "kernels/cpu/rows-inl.h"

namespace gapless {

constinit const RowBodies kAvx2Rows = kRows;

}  // namespace gapless
