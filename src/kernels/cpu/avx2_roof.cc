#include <immintrin.h>

#include "kernels/cpu/roof_bodies.h"

namespace gapless {
namespace {

// int8 products as avx2_matmul.cc makes them: vpmaddubsw, vpmaddwd, vpaddd. Zeros: no slow values.
#define TWELVE(op) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15)
#define CLEAR(k) "vpxor %%ymm" #k ", %%ymm" #k ", %%ymm" #k "\n"
#define DOT(k)                          \
  "vpmaddubsw %%ymm0, %%ymm0, %%ymm1\n" \
  "vpmaddwd %%ymm0, %%ymm1, %%ymm1\n"   \
  "vpaddd %%ymm1, %%ymm" #k ", %%ymm" #k "\n"
#define FMA(k) "vfmadd231ps %%ymm0, %%ymm0, %%ymm" #k "\n"
#define SUMS                                                                                          \
  "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"

void int8(int64_t n) {
  asm volatile(CLEAR(0) TWELVE(CLEAR) "1:\n" TWELVE(DOT) "dec %0\n jnz 1b\n" : "+r"(n)::SUMS, "cc");
}
void fma(int64_t n) {
  asm volatile(CLEAR(0) TWELVE(CLEAR) "1:\n" TWELVE(FMA) "dec %0\n jnz 1b\n" : "+r"(n)::SUMS, "cc");
}
void read(const std::byte* p, size_t bytes) {
  __m256i sums[8] = {};
  for (const std::byte* end = p + bytes; p < end; p += RoofBodies::kReadStep)
    for (int i = 0; i < 8; i++)
      sums[i] = _mm256_add_epi32(sums[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(p) + i));
  for (int i = 0; i < 8; i++) asm volatile("" ::"x"(sums[i]));
}

}  // namespace

constinit const RoofBodies kAvx2Roof = {int8, 12.0 * 32 * 2, fma, 12.0 * 8 * 2, read};

}  // namespace gapless
