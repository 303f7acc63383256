// Bodies of BlockMath, included once per instruction set inside a namespace of its own. Everything is
// internal to the including file: nothing compiled for a wide instruction set may be visible to the linker
// under a common name.

using V = float __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int kLanes = 16;

// For maxima, where the number of lanes does not change the result: what a register holds (wider ones are
// taken apart lane by lane).
#if defined(__AVX512F__)
using M = V;
#elif defined(__AVX2__)
using M = float __attribute__((vector_size(32), aligned(4), may_alias));
#else
using M = float __attribute__((vector_size(16), aligned(4), may_alias));
#endif
constexpr int kMaxLanes = sizeof(M) / sizeof(float);

constexpr float kLowest = -__builtin_inff();

M larger(M a, M b) {
  return a > b ? a : b;
}

// By halves: log2 of the lanes in steps that depend on each other, instead of one for each lane.
float largest_lane(M m) {
#if defined(__AVX512F__)
  m = larger(m, __builtin_shufflevector(m, m, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  m = larger(m, __builtin_shufflevector(m, m, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  m = larger(m, __builtin_shufflevector(m, m, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
#elif defined(__AVX2__)
  m = larger(m, __builtin_shufflevector(m, m, 4, 5, 6, 7, 0, 1, 2, 3));
  m = larger(m, __builtin_shufflevector(m, m, 2, 3, 0, 1, 2, 3, 0, 1));
#else
  m = larger(m, __builtin_shufflevector(m, m, 2, 3, 0, 1));
#endif
  return m[0] > m[1] ? m[0] : m[1];
}

// Of what is not NaN; -inf if nothing is.
float group_maximum(const float* x, int32_t n) {
  M m = kLowest - M{};
  int32_t i = 0;
  for (; i + kMaxLanes <= n; i += kMaxLanes) {
    const M v = *reinterpret_cast<const M*>(x + i);
    m = v > m ? v : m;
  }
  float result = largest_lane(m);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

BlockMax max(const float* x, int32_t n, float* group_max) {
  BlockMax result{kLowest, 0};
  int32_t best_group = -1;
  for (int32_t g = 0; g < kGroupsPerBlock; ++g) {
    const int32_t begin = g * kMaxGroup, left = n - begin;
    group_max[g] = left > 0 ? group_maximum(x + begin, left < kMaxGroup ? left : kMaxGroup) : kLowest;
    if (group_max[g] > result.max) {
      result.max = group_max[g];
      best_group = g;
    }
  }
  if (best_group < 0) return result;
  result.argmax = best_group * kMaxGroup;
  while (x[result.argmax] != result.max) ++result.argmax;
  return result;
}

float exp_sum(const float* x, int32_t n, float reference, float scale, float* w) {
  for (int32_t i = 0; i < n; ++i) w[i] = numeric::exp((x[i] - reference) * scale);
  for (int32_t i = n; i % kLanes != 0; ++i) w[i] = 0;
  V sum{};
  for (int32_t i = 0; i < n; i += kLanes) sum += *reinterpret_cast<const V*>(w + i);
  float lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = sum[l];
  return numeric::tree_sum(lanes);
}
