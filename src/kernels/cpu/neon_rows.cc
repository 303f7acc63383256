#include "kernels/cpu/vec_neon.h"
// The lanes come first.
#include "kernels/cpu/rows-inl.h"

namespace gapless {

constinit const RowBodies kNeonRows = kRows;

}  // namespace gapless
