// Plain loops for every op of kernels/ops.h: the contract in code, and the oracle of every other table.
#pragma once

#include "kernels/ops.h"

namespace gapless {

const OpTable& reference_op_table();

void reference_attention(OpList& ops, const AttentionParams& params);

}  // namespace gapless
