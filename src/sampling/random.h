// The random numbers of sampling: a pure function of (seed, choice, output index, purpose), so that a request
// draws the same ones alone, in a crowd, after a retraction and in either loop.
#pragma once

#include <array>
#include <cstdint>

namespace gapless {

enum class RandomPurpose : uint32_t { kSampleToken = 0 };

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): ten
// rounds of two multiplications; every bit of the key and the counter reaches every bit of the result.
inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1],
               uint32_t(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// In [0, 1), 53 bits.
inline double random_uniform(uint64_t seed, int32_t choice, int32_t output_index, RandomPurpose purpose) {
  const auto r = philox4x32({uint32_t(output_index), uint32_t(choice), uint32_t(purpose), 0},
                            {uint32_t(seed), uint32_t(seed >> 32)});
  return double((uint64_t(r[0]) << 32 | r[1]) >> 11) * 0x1p-53;
}

}  // namespace gapless
