// Loops that do nothing but arithmetic on registers; same rules as cpu/bodies.h.
#pragma once

#include <cstdint>

namespace gapless {

struct RoofBodies {
  void (*int8)(int64_t n);  // n times int8_operations
  double int8_operations;
  void (*fma)(int64_t n);  // n times fma_operations
  double fma_operations;
};

extern const RoofBodies kAvx512Roof, kAvx2Roof, kNeonRoof;

}  // namespace gapless
