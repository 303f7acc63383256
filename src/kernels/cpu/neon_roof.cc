#include <arm_neon.h>

#include "kernels/cpu/roof_bodies.h"

namespace gapless {
namespace {

// 16 chains, enough for 4 pipes of 4 cycles. Zeros: no slow values.
#define SIXTEEN(op)                                                                                        \
  op(16) op(17) op(18) op(19) op(20) op(21) op(22) op(23) op(24) op(25) op(26) op(27) op(28) op(29) op(30) \
      op(31)
#define CLEAR(k) "movi v" #k ".4s, #0\n"
#define DOT(k) "sdot v" #k ".4s, v0.16b, v0.16b\n"
#define FMA(k) "fmla v" #k ".4s, v0.4s, v0.4s\n"
#define SUMS                                                                                              \
  "v0", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", \
      "v30", "v31"

void int8(int64_t n) {
  asm volatile(CLEAR(0) SIXTEEN(CLEAR) "1:\n" SIXTEEN(DOT) "subs %0, %0, #1\n b.ne 1b\n"
               : "+r"(n)::SUMS, "cc");
}
void fma(int64_t n) {
  asm volatile(CLEAR(0) SIXTEEN(CLEAR) "1:\n" SIXTEEN(FMA) "subs %0, %0, #1\n b.ne 1b\n"
               : "+r"(n)::SUMS, "cc");
}
void read(const std::byte* p, size_t bytes) {
  uint32x4_t sums[8] = {};
  for (const std::byte* end = p + bytes; p < end; p += 128)
    for (int i = 0; i < 8; i++)
      sums[i] = vaddq_u32(sums[i], vld1q_u32(reinterpret_cast<const uint32_t*>(p) + 4 * i));
  for (int i = 0; i < 8; i++) asm volatile("" ::"w"(sums[i]));
}

}  // namespace

constinit const RoofBodies kNeonRoof = {int8, 16.0 * 16 * 2, fma, 16.0 * 4 * 2, read};

}  // namespace gapless
