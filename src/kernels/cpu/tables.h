// The vector tables. Call only through op_table(), which asks the CPU first.
#pragma once

#include "kernels/ops.h"

namespace gapless {

// GAPLESS_X86_KERNELS
const OpTable& avx2_op_table();
const OpTable& avx512_op_table();
// GAPLESS_NEON_KERNELS
const OpTable& neon_op_table();

}  // namespace gapless
