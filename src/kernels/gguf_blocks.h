// The blocks of GGUF's quantised tensor types, taken apart. Used by quant.cc only.
#pragma once

#include <cstring>

#include "kernels/numeric.h"
#include "kernels/quant.h"

namespace gapless {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
inline float load_f16(const std::byte* p) {
  return numeric::f16_to_f32(load<uint16_t>(p));
}

// 16 bytes: element i in the low nibble of byte i, element 16 + i in its high nibble.
void unpack_nibbles(const std::byte* p, int8_t* q);

// Block b (32 elements) of a row of GGUF blocks. Layouts: ggml-common.h.
void unpack_gguf(DType type, const std::byte* row, int64_t b, UnpackedBlock& out);

}  // namespace gapless
