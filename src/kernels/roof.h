// What this machine can do at most: the measure that `gapless bench` puts speeds against.
#pragma once

#include <cstddef>

namespace gapless {

struct Roof {
  double int8_gops;   // products of int8 and their sums, two operations each, as matmul kernels use them
  double f32_gflops;  // fused multiply-adds, two operations each
  double read_gbps;   // 10^9 bytes per second from memory, beyond the last-level cache
};

// Measures with `threads` threads for about 0.3 s (plus the time to touch 128 to 512 MB) and returns the best
// of three rounds of each kind: other processes can only make a round slower. Arithmetic runs on registers
// that are fixed in assembly, with the widest instructions that best_isa() uses; compilers turn such loops
// into memory traffic or into nothing. Blocks; any thread.
Roof measure_roof(int threads);

// How much memory a loop must walk through before it comes back, so that no cache helps: four times the
// last-level cache, 128 to 512 MB.
size_t bytes_beyond_cache();

}  // namespace gapless
