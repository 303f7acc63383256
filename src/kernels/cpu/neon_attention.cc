#include "kernels/cpu/vec_neon.h"
// The lanes come first.
#include "kernels/cpu/attention-inl.h"

namespace gapless {

constinit const AttentionBodies kNeonAttention = kAttention;

}  // namespace gapless
