#include "kernels/numeric.h"
#include "sampling/block_math.h"

namespace gapless {
namespace {
#include "sampling/block_math-inl.h"
}  // namespace

const BlockMath kBlockMathAvx512{max, exp_sum};

}  // namespace gapless
