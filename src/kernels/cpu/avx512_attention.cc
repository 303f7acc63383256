#include "kernels/cpu/vec_avx512.h"
// The lanes come first.
#include "kernels/cpu/attention-inl.h"

namespace gapless {

constinit const AttentionBodies kAvx512Attention = kAttention;

}  // namespace gapless
