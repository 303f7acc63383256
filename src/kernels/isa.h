// Which instruction set the kernels use. Chosen once at start (`--isa`); every choice gives the same bits.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/ops.h"

namespace gapless {

enum class Isa {
  kReference,  // plain loops, any CPU: the contract in code, 20 to 50 times slower
  kAvx2,       // AVX2, FMA, F16C
  kAvx512,     // AVX-512 F, BW, VL, DQ and VNNI
  kNeon        // arm64's vectors, with the dot product of bytes
};
// A better one follows a worse one of the same architecture.
inline constexpr Isa kIsas[] = {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kNeon};

// The kernels of an instruction set, or nullptr where this build or this CPU (with its operating system) does
// not have it.
const OpTable* op_table(Isa isa);

// The fastest one that op_table() has.
Isa best_isa();
const char* isa_name(Isa isa);

// "auto", "reference", "avx2", "avx512" or "neon". The error says what this CPU has.
Result<Isa> parse_isa(std::string_view name);

// The features of this CPU that kernels ask about, for the start banner: "avx2 fma f16c avx512f ..." or
// "neon dotprod".
std::string cpu_features();

}  // namespace gapless
