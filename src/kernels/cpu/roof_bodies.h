// Loops that do nothing but arithmetic on registers, or nothing but reading; same rules as cpu/bodies.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless {

struct RoofBodies {
  void (*int8)(int64_t n);  // n times int8_operations
  double int8_operations;
  void (*fma)(int64_t n);  // n times fma_operations
  double fma_operations;
  // Reads them all with the widest loads: one core cannot keep memory busy with 8 bytes at a time (31 of 38
  // GB/s). `bytes` is a multiple of kReadStep, p aligned to 64.
  void (*read)(const std::byte* p, size_t bytes);
  static constexpr size_t kReadStep = 256;
};

extern const RoofBodies kAvx512Roof, kAvx2Roof, kNeonRoof;

}  // namespace gapless
