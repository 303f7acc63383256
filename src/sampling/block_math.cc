#include "sampling/block_math.h"

namespace gapless {

const BlockMath* const* all_block_maths(int* count) {
  *count = 1;
#if defined(__x86_64__)
  static const BlockMath* const kAll[] = {&kBlockMathGeneric, &kBlockMathAvx2, &kBlockMathAvx512};
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    *count = 2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) *count = 3;
  }
#else
  static const BlockMath* const kAll[] = {&kBlockMathGeneric};
#endif
  return kAll;
}

const BlockMath& block_math() {
  int count = 0;
  const BlockMath* const* all = all_block_maths(&count);
  return *all[count - 1];
}

}  // namespace gapless
