#include <immintrin.h>

#include "kernels/cpu/roof_bodies.h"

namespace gapless {
namespace {

// Twelve sums: two instructions a cycle of up to five cycles each. Their values do not matter, but must not
// be slow ones: zeros.
#define TWELVE(op) op(20) op(21) op(22) op(23) op(24) op(25) op(26) op(27) op(28) op(29) op(30) op(31)
#define CLEAR(k) "vpxord %%zmm" #k ", %%zmm" #k ", %%zmm" #k "\n"
#define DOT(k) "vpdpbusd %%zmm16, %%zmm16, %%zmm" #k "\n"
#define FMA(k) "vfmadd231ps %%zmm16, %%zmm16, %%zmm" #k "\n"
#define SUMS                                                                                         \
  "xmm16", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", \
      "xmm30", "xmm31"

void int8(int64_t n) {
  asm volatile(CLEAR(16) TWELVE(CLEAR) "1:\n" TWELVE(DOT) "dec %0\n jnz 1b\n" : "+r"(n)::SUMS, "cc");
}
void fma(int64_t n) {
  asm volatile(CLEAR(16) TWELVE(CLEAR) "1:\n" TWELVE(FMA) "dec %0\n jnz 1b\n" : "+r"(n)::SUMS, "cc");
}
void read(const std::byte* p, size_t bytes) {
  __m512i sums[4] = {};
  for (const std::byte* end = p + bytes; p < end; p += RoofBodies::kReadStep)
    for (int i = 0; i < 4; i++) sums[i] = _mm512_add_epi32(sums[i], _mm512_load_si512(p + 64 * i));
  asm volatile("" ::"v"(sums[0]), "v"(sums[1]), "v"(sums[2]), "v"(sums[3]));
}

}  // namespace

constinit const RoofBodies kAvx512Roof = {int8, 12.0 * 64 * 2, fma, 12.0 * 16 * 2, read};

}  // namespace gapless
