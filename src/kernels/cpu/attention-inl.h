// Paged attention with grouped heads, written on the 16 lanes of a cpu/vec_*.h, which is included first. The
// order of arithmetic is in kernels/ops.h (AttentionParams).
//
// A "query" is one head of one row: query i is row i / group, head i % group. Up to kPvQueries queries share
// each piece of K and V that is read and converted, in registers. A vector of K holds one element of 16
// positions (k_element of kernels/ops.h), a vector of V 16 elements of one position.
#pragma once

#include "kernels/cpu/attention_walk-inl.h"
#include "kernels/cpu/exp-inl.h"

namespace gapless {
namespace {

// Scores of Q queries and N groups of 16 positions: p[i * kBlock + 16 n + lane]. k_scale is of the first
// position.
template <class L, int Q, int N>
void score_tile(const float* const* q, const typename L::Element* const* k, int32_t dim, float scale,
                const float* k_scale, float* p, Pace* ahead) {
  V acc[Q][N];
  _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) _Pragma("GCC unroll 16") for (int n = 0; n < N; n++)
      acc[i][n] = zero();
  for (int32_t begin = 0; begin < dim; begin += kPaceElements) {
    if (ahead) ahead->next();
    for (int32_t d = begin; d < begin + kPaceElements; d++)
      _Pragma("GCC unroll 16") for (int n = 0; n < N; n++) {
        const V key = L::load(k[n] + 16 * d);
        _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) acc[i][n] = fma(set1(q[i][d]), key, acc[i][n]);
      }
  }
  _Pragma("GCC unroll 16") for (int n = 0; n < N; n++) {
    const V factor = L::kScaled ? mul(set1(scale), load(k_scale + 16 * n)) : set1(scale);
    _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++)
        store(p + i * kBlock + 16 * n, mul(factor, acc[i][n]));
  }
}

template <class L>
using ScoreTile = void (*)(const float* const*, const typename L::Element* const*, int32_t, float,
                           const float*, float*, Pace*);
// The tables have places for the widest instruction set; what another cannot hold is never asked for.
constexpr int tile_size(int wanted, int most) {
  return wanted <= most ? wanted : 1;
}
template <class L, int Q>
constexpr ScoreTile<L> kScoreTilesOf[] = {score_tile<L, Q, 1>, score_tile<L, Q, tile_size(2, kQkVectors)>,
                                          score_tile<L, Q, tile_size(3, kQkVectors)>,
                                          score_tile<L, Q, tile_size(4, kQkVectors)>};
template <class L>
constexpr const ScoreTile<L>* kScoreTiles[] = {kScoreTilesOf<L, 1>,
                                               kScoreTilesOf<L, 2>,
                                               kScoreTilesOf<L, 3>,
                                               kScoreTilesOf<L, tile_size(4, kPvQueries)>,
                                               kScoreTilesOf<L, tile_size(5, kPvQueries)>,
                                               kScoreTilesOf<L, tile_size(6, kPvQueries)>};

// Groups begin .. end - 1 of the block, which lie at k[0], k[1], ..., for every query that sees any of them.
template <class L>
void score_groups(Walk& w, const typename L::Element* const* k, int32_t begin, int32_t end) {
  const AttentionJob& job = w.job;
  for (int32_t query = 0; query < w.queries;) {
    const int32_t left = w.queries - query, take = left < kPvQueries ? left : kPvQueries;
    const int32_t from = w.row_from(query / job.group) / 16,
                  to = (w.row_to((query + take - 1) / job.group) + 15) / 16;
    const float* q[kPvQueries];
    for (int32_t i = 0; i < take; i++)
      q[i] = job.q + (query + i) / job.group * job.q_row + int64_t((query + i) % job.group) * job.head_dim;
    for (int32_t g = from > begin ? from : begin; g < (to < end ? to : end);) {
      const int32_t rest = (to < end ? to : end) - g, n = rest < kQkVectors ? rest : kQkVectors;
      kScoreTiles<L>[take - 1][n - 1](q, k + (g - begin), job.head_dim, job.scale, w.k_scale + 16 * g,
                                      w.p + int64_t(query) * kBlock + 16 * g,
                                      query == 0 ? &w.k_ahead : nullptr);
      g += n;
    }
    query += take;
  }
}

template <class L>
const typename L::Element* elements(const std::byte* base, int64_t at) {
  return reinterpret_cast<const typename L::Element*>(base + at);
}

// K is a row per position: 16 of them are transposed into scratch.
template <class L>
void transpose_group(const Walk& w, int32_t group) {
  for (int32_t j = 0; j < 16; j++) {
    const int32_t position = 16 * group + j;
    const bool here = position >= w.now->from && position < w.now->to;
    for (int32_t d = 0; d < w.job.head_dim; d += 16) {
      alignas(64) float row[16];
      store(row, here ? L::load(elements<L>(w.job.k, w.now->at[position]) + d) : zero());
      for (int32_t i = 0; i < 16; i++) w.k_group[(d + i) * 16 + j] = row[i];
    }
  }
}

template <class L>
void scores(Walk& w) {
  const int32_t begin = w.now->from / 16, end = begin + groups(*w.now);
  if (k_has_lanes(w.job)) {
    const typename L::Element* k[kBlock / 16];
    for (int32_t g = begin; g < end; g++) k[g - begin] = elements<L>(w.job.k, w.now->at[16 * g]);
    score_groups<L>(w, k, begin, end);
    return;
  }
  const float* const k = w.k_group;
  for (int32_t g = begin; g < end; g++) {
    transpose_group<L>(w, g);
    score_groups<LoadTransposed<L>>(w, &k, g, g + 1);
  }
}

// Lanes of vector i (positions 16 i .. 16 i + 15) outside from .. to - 1 become minus infinity, so their
// weight is 0.
inline V masked(const float* p, int32_t i, int32_t from, int32_t to) {
  int32_t first = from - 16 * i, last = to - 16 * i;
  first = first < 0 ? 0 : first;
  last = last > 16 ? 16 : last;
  if (first >= last) return set1(-__builtin_inff());
  const V v = load(p + 16 * i);
  return first == 0 && last == 16 ? v : only(v, first, last);
}

// Scores become weights, of which the sum is taken before each gets the scale of its V.
template <class L>
void soften(Walk& w, int32_t query, int32_t from, int32_t to) {
  float* p = w.p + int64_t(query) * kBlock;
  V s[kBlock / 16], largest = set1(-__builtin_inff()), sum = zero();
  for (int32_t i = 0; i < kBlock / 16; i++) {
    s[i] = masked(p, i, from, to);
    largest = max(largest, s[i]);
  }
  const float m = max_lane(largest);
  for (int32_t i = 0; i < kBlock / 16; i++) {
    const V weight = exp(sub(s[i], set1(m)));
    store(p + 16 * i, L::kScaled ? mul(weight, load(w.v_scale + 16 * i)) : weight);
    sum = add(sum, weight);
  }
  w.m_b[query] = m;
  w.l_b[query] = tree_sum(sum);
}

template <class L>
void softmax(Walk& w) {
  for (int32_t row = 0; row < w.job.rows; row++)
    if (w.row_sees_block(row))
      for (int32_t h = 0; h < w.job.group; h++)
        soften<L>(w, row * w.job.group + h, w.row_from(row), w.row_to(row));
}

// Takes m_b and l_b of the block into m and l, and finds the factors that combine its sums of values with
// what came before.
void merge(Walk& w) {
  alignas(64) float new_m[kMaxQueries], new_l[kMaxQueries];
  for (int32_t i = 0; i < w.queries; i += 16) {
    const V m = load(w.m + i), m_b = load(w.m_b + i), larger = max(m, m_b);
    const V c = exp(sub(m, larger)), c_b = exp(sub(m_b, larger));
    store(w.c + i, c);
    store(w.c_b + i, c_b);
    store(new_m + i, larger);
    store(new_l + i, fma(load(w.l + i), c, mul(load(w.l_b + i), c_b)));
  }
  for (int32_t row = 0; row < w.job.rows; row++) {
    if (!w.row_sees_block(row)) continue;
    const bool first = w.first_block_of(row);
    for (int32_t i = row * w.job.group; i < (row + 1) * w.job.group; i++) {
      w.m[i] = first ? w.m_b[i] : new_m[i];
      w.l[i] = first ? w.l_b[i] : new_l[i];
    }
  }
}

// Q queries from `query` on and the N vectors of head_dim from d on: sums the block's values and combines
// them with o.
template <class L, int Q, int N>
void weigh_values(Walk& w, int32_t query, int32_t d) {
  int32_t from[Q], to[Q], all_from = 0, all_to = kBlock, any_from = kBlock, any_to = 0;
  for (int i = 0; i < Q; i++) {
    const int32_t row = (query + i) / w.job.group;
    from[i] = w.row_from(row);
    to[i] = w.row_to(row);
    all_from = from[i] > all_from ? from[i] : all_from;
    all_to = to[i] < all_to ? to[i] : all_to;
    if (from[i] >= to[i]) continue;
    any_from = from[i] < any_from ? from[i] : any_from;
    any_to = to[i] > any_to ? to[i] : any_to;
  }
  if (all_from >= all_to) all_from = all_to = any_to;  // no position that all see
  V acc[Q][N];
  _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) _Pragma("GCC unroll 16") for (int n = 0; n < N; n++)
      acc[i][n] = zero();
  const float* p = w.p + int64_t(query) * kBlock;
  const auto some = [&](int32_t begin, int32_t end) {
    for (int32_t j = begin; j < end; j++) {
      const auto* row = elements<L>(w.job.v, w.now->at[j]) + d;
      _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) {
        if (j < from[i] || j >= to[i]) continue;
        _Pragma("GCC unroll 16") for (int n = 0; n < N; n++) acc[i][n] =
            fma(set1(p[i * kBlock + j]), L::load(row + 16 * n), acc[i][n]);
      }
    }
  };
  some(any_from, all_from);
  const bool prefetches = query == 0;
  for (int32_t j = all_from; j < all_to; j++) {
    if (prefetches) w.v_ahead.next();
    const auto* row = elements<L>(w.job.v, w.now->at[j]) + d;
    V value[N];
    _Pragma("GCC unroll 16") for (int n = 0; n < N; n++) value[n] = L::load(row + 16 * n);
    _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) {
      const V weight = set1(p[i * kBlock + j]);
      _Pragma("GCC unroll 16") for (int n = 0; n < N; n++) acc[i][n] = fma(weight, value[n], acc[i][n]);
    }
  }
  some(all_to, any_to);
  _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) {
    const int32_t row = (query + i) / w.job.group;
    if (from[i] >= to[i]) continue;
    float* o = w.o + int64_t(query + i) * w.job.head_dim + d;
    const bool first = w.first_block_of(row);
    const V c = set1(w.c[query + i]), c_b = set1(w.c_b[query + i]);
    _Pragma("GCC unroll 16") for (int n = 0; n < N; n++)
        store(o + 16 * n, first ? acc[i][n] : fma(load(o + 16 * n), c, mul(acc[i][n], c_b)));
  }
}

template <class L, int Q>
void weigh_queries(Walk& w, int32_t query) {
  const int32_t dim = w.job.head_dim;
  int32_t d = 0;
  for (; d + 16 * kPvVectors <= dim; d += 16 * kPvVectors) weigh_values<L, Q, kPvVectors>(w, query, d);
  for (; d < dim; d += 16) weigh_values<L, Q, 1>(w, query, d);
}

template <class L>
void values(Walk& w) {
  for (int32_t query = 0; query < w.queries;) {
    const int32_t left = w.queries - query;
    const int32_t take = left < kPvQueries ? left : kPvQueries;
    switch (take) {
      case 1:
        weigh_queries<L, 1>(w, query);
        break;
      case 2:
        weigh_queries<L, 2>(w, query);
        break;
      case 3:
        weigh_queries<L, 3>(w, query);
        break;
      case 4:
        weigh_queries < L, kPvQueries<4 ? 3 : 4>(w, query);
        break;
      case 5:
        weigh_queries < L, kPvQueries<5 ? 3 : 5>(w, query);
        break;
      default:
        weigh_queries<L, kPvQueries>(w, query);
        break;
    }
    query += take;
  }
}

// o = o_b, or the combination of both.
void take_values(Walk& w, int32_t query, bool first, const float* o_b) {
  float* const o = w.o + int64_t(query) * w.job.head_dim;
  const V c = set1(w.c[query]), c_b = set1(w.c_b[query]);
  for (int32_t d = 0; d < w.job.head_dim; d += 16) {
    const V value = load(o_b + d);
    store(o + d, first ? value : fma(load(o + d), c, mul(value, c_b)));
  }
}

void store_output(const Walk& w) {
  const AttentionJob& job = w.job;
  for (int32_t i = 0; i < w.queries; i++) {
    float* out = job.out + i / job.group * job.out_row + int64_t(i % job.group) * job.head_dim;
    const float* o = w.o + int64_t(i) * job.head_dim;
    for (int32_t d = 0; d < job.head_dim; d += 16) store(out + d, div(load(o + d), set1(w.l[i])));
  }
}

template <class L>
void attend(const AttentionJob& job) {
  Walk w(job, job.partials != nullptr);
  const int32_t end = job.end_block * kBlock, begin = job.begin_block * kBlock;
  w.ahead->locate(job, begin);
  if (job.cold) k_pace(*w.ahead, job.k, 1).next();
  for (int32_t block = begin; block < end; block += kBlock) {
    enter_block<L>(w, block, end);
    if (L::kScaled) {
      read_scales(*w.now, job.k, w.k_scale);
      read_scales(*w.now, job.v, w.v_scale);
    }
    scores<L>(w);
    softmax<L>(w);
    if (w.apart) {
      w.o = partial_of(job, block);
      float* const sums = w.o + int64_t(w.queries) * job.head_dim;
      for (int32_t i = 0; i < w.queries; i++) {
        sums[i] = w.m_b[i];
        sums[w.queries + i] = w.l_b[i];
      }
    } else {
      merge(w);
    }
    values<L>(w);
  }
  if (!w.apart) store_output(w);
}

void combine(const AttentionJob& job) {
  Walk w(job, false);
  for (int32_t b = job.begin_block; b < job.end_block; b++) {
    w.block = b * kBlock;
    const float* const o_b = partial_of(job, w.block);
    const float* const sums = o_b + int64_t(w.queries) * job.head_dim;
    for (int32_t i = 0; i < w.queries; i++) {
      w.m_b[i] = sums[i];
      w.l_b[i] = sums[w.queries + i];
    }
    merge(w);
    for (int32_t i = 0; i < w.queries; i++) {
      const int32_t row = i / job.group;
      if (w.row_sees_block(row)) take_values(w, i, w.first_block_of(row), o_b + int64_t(i) * job.head_dim);
    }
  }
  store_output(w);
}

constexpr AttentionBodies kAttention = {{attend<LoadF16>, attend<LoadBf16>, attend<LoadI8>}, combine};

}  // namespace
}  // namespace gapless
