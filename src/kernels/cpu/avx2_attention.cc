#include "kernels/cpu/vec_avx2.h"
// The lanes come first.
#include "kernels/cpu/attention-inl.h"

namespace gapless {

constinit const AttentionBodies kAvx2Attention = kAttention;

}  // namespace gapless
