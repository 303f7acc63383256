// What this machine can do at most: the measure that `gapless bench` puts speeds against.
#pragma once

#include <algorithm>
#include <cstddef>

namespace gapless {

struct Roof {
  double int8_gops;   // products of int8 and their sums, two operations each, as matmul kernels use them
  double f32_gflops;  // fused multiply-adds, two operations each
  double read_gbps;   // 10^9 bytes per second from memory, beyond the last-level cache
};

inline Roof best_of(const Roof& a, const Roof& b) {
  return {std::max(a.int8_gops, b.int8_gops), std::max(a.f32_gflops, b.f32_gflops),
          std::max(a.read_gbps, b.read_gbps)};
}

// Measures with `threads` threads for about 0.3 s (plus the time to touch 512 MB) and returns the best
// of three rounds of each kind: other processes can only make a round slower. Rounds in which they took a
// core away are repeated, up to 2 s in all. Arithmetic runs on registers that are fixed in assembly, with the
// widest instructions that best_isa() uses and as many independent sums as keep them busy (with 8 instead of
// 12 a Zen 5 core does 10 % less); compilers turn such loops into memory traffic or into nothing. Blocks; any
// thread.
Roof measure_roof(int threads);

// How much memory a loop must walk through before it comes back, so that no cache helps: four times the
// last-level cache, 128 to 512 MB.
size_t bytes_beyond_cache();

}  // namespace gapless
