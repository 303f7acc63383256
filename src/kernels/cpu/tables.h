// The vector tables. Call only through op_table(), which asks the CPU first.
#pragma once

#include "kernels/ops.h"

namespace gapless {

const OpTable& avx2_op_table();
const OpTable& avx512_op_table();

}  // namespace gapless
