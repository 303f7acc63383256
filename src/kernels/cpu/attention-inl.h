// Paged attention with grouped heads, written on the 16 lanes of a cpu/vec_*.h, which is included first. The
// order of arithmetic is in kernels/ops.h (AttentionParams).
//
// A "query" is one head of one row: query i is row i / group, head i % group. All queries of a job share each
// K and V row that is read: 16 K rows at a time are converted once to scratch, V rows are converted in
// registers for up to kPvQueries queries.
#pragma once

#include "kernels/cpu/bodies.h"
#include "kernels/cpu/exp-inl.h"

namespace gapless {
namespace {

constexpr int32_t kBlock = 64;  // kKvBlock of kernels/ops.h
constexpr int32_t kMaxQueries = AttentionJob::kMaxQueries;

struct LoadF16 {
  static V load(const uint16_t* p) { return load_f16(p); }
};
struct LoadBf16 {
  static V load(const uint16_t* p) { return load_bf16(p); }
};

inline int32_t window_begin(const AttentionJob& job, int32_t row) {
  const int32_t begin = job.pos_begin + row - job.window + 1;
  return job.window > 0 && begin > 0 ? begin : 0;
}

// Not the builtin: gcc 12 takes a function that only prefetches for one without effect and drops the call.
inline void fetch(const void* p) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(p)));
}

// The part of a KV block that some row of a job sees: positions from .. to - 1, relative to the block, and
// where their rows are.
struct BlockRows {
  const AttentionJob* job;
  int32_t from, to;
  int64_t at[kBlock];

  void locate(const AttentionJob& j, int32_t block) {
    const int32_t begin = window_begin(j, 0) - block, end = j.pos_begin + j.rows - block;
    job = &j;
    from = begin > 0 ? begin : 0;
    to = end < kBlock ? end : kBlock;
    int32_t page = (block + from) / j.page_size, offset = (block + from) % j.page_size;
    for (int32_t i = from; i < to; i++) {
      at[i] = int64_t(j.pages[page]) * j.page_stride + int64_t(offset) * j.head_dim;
      if (++offset == j.page_size) {
        offset = 0;
        page++;
      }
    }
  }
};

// Prefetches the rows of K or V of a block, evenly over `calls` calls. KV comes from memory in pieces as
// short as a page, too short for the hardware's prefetcher, and a burst of prefetches is dropped when the
// core's miss buffers are full: so they are spread over the work on the block before. Measured (Zen 5, one
// thread, 8 rows of 192 positions, 3 heads of 64): 112 us without, 70 in bursts, 52 spread; 40 with KV in
// cache.
struct Pace {
  const BlockRows* rows = nullptr;
  const uint16_t* base = nullptr;
  int32_t done = 0, due = 0, step = 0;  // done: rows; due, step: rows * 2^16

  Pace() = default;
  Pace(const BlockRows& r, const uint16_t* b, int32_t calls)
      : rows(&r), base(b), done(r.from), due(r.from << 16 | 0xffff), step((r.to - r.from) * 65536 / calls) {}
  void next() {
    due += step;
    for (; done < due >> 16; done++)
      for (int32_t d = 0; d < rows->job->head_dim; d += 32) fetch(base + rows->at[done] + d);
  }
};

// The state of a job while it walks through the KV blocks.
struct Walk {
  const AttentionJob& job;
  int32_t queries;
  float* o;       // [query][head_dim]
  float* p;       // [query][kBlock] scores, then weights
  float* k_rows;  // [head_dim / 16][16][16]
  int32_t block;  // first position of the current block
  BlockRows rows[2];
  const BlockRows* now = &rows[1];  // of this block
  BlockRows* ahead = &rows[0];      // of the block to come
  Pace k_ahead, v_ahead;
  alignas(64) float m[kMaxQueries], l[kMaxQueries];      // running maximum and sum
  alignas(64) float m_b[kMaxQueries], l_b[kMaxQueries];  // of the block
  alignas(64) float c[kMaxQueries], c_b[kMaxQueries];    // factors of the combine

  explicit Walk(const AttentionJob& j)
      : job(j),
        queries(j.rows * j.group),
        o(j.scratch),
        p(o + int64_t(kMaxQueries) * j.head_dim),
        k_rows(p + kMaxQueries * kBlock) {
    for (int32_t i = 0; i < kMaxQueries; i++) m[i] = l[i] = m_b[i] = l_b[i] = 0;
  }

  // What a row sees of the block: row_from .. row_to - 1.
  int32_t row_from(int32_t row) const {
    const int32_t from_here = window_begin(job, row) - block;
    return from_here > 0 ? from_here : 0;
  }
  int32_t row_to(int32_t row) const {
    const int32_t to_here = job.pos_begin + row + 1 - block;
    return to_here < kBlock ? to_here : kBlock;
  }
  bool row_sees_block(int32_t row) const { return row_from(row) < row_to(row); }
  bool first_block_of(int32_t row) const { return window_begin(job, row) >= block; }
};

// Moves to the block at `block`, whose rows were located when it lay ahead. What follows is the next block
// or, at the end, the first one of the job that probably comes next.
void enter_block(Walk& w, int32_t block, int32_t end) {
  w.block = block;
  w.now = w.ahead;
  w.ahead = w.now == &w.rows[0] ? &w.rows[1] : &w.rows[0];
  w.k_ahead = w.v_ahead = {};
  const bool last = block + kBlock >= end;
  if (last && !w.job.next) return;
  const AttentionJob& job = last ? *w.job.next : w.job;
  w.ahead->locate(job, last ? window_begin(job, 0) / kBlock * kBlock : block + kBlock);
  w.k_ahead = Pace(*w.ahead, job.k, ((w.now->to + 15) / 16 - w.now->from / 16) * w.queries);
  w.v_ahead = Pace(*w.ahead, job.v, w.now->to - w.now->from);
}

template <class L>
void load_k_rows(const Walk& w, int32_t j0) {
  const int32_t dim = w.job.head_dim;
  for (int32_t j = 0; j < 16; j++) {
    float* out = w.k_rows + 16 * j;
    if (j0 + j < w.now->from || j0 + j >= w.now->to) {
      for (int32_t d = 0; d < dim; d += 16) store(out + 16 * d, zero());
      continue;
    }
    const uint16_t* k = w.job.k + w.now->at[j0 + j];
    for (int32_t d = 0; d < dim; d += 16) store(out + 16 * d, L::load(k + d));
  }
}

template <class L>
void scores(Walk& w) {
  const AttentionJob& job = w.job;
  const V factor = set1(job.scale);
  for (int32_t j0 = w.now->from / 16 * 16; j0 < w.now->to; j0 += 16) {
    load_k_rows<L>(w, j0);
    for (int32_t row = 0; row < job.rows; row++) {
      if (w.row_from(row) >= j0 + 16 || w.row_to(row) <= j0) continue;
      for (int32_t h = 0; h < job.group; h++) {
        const int32_t query = row * job.group + h;
        w.k_ahead.next();
        const float* q = job.q + row * job.q_row + int64_t(h) * job.head_dim;
        const V s = dot16(q, w.k_rows, job.head_dim);
        store(w.p + int64_t(query) * kBlock + j0, mul(factor, s));
      }
    }
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
    store(p + 16 * i, weight);
    sum = add(sum, weight);
  }
  w.m_b[query] = m;
  w.l_b[query] = tree_sum(sum);
}

// Weights of the block, and the factors that combine it with what came before.
void softmax(Walk& w) {
  for (int32_t row = 0; row < w.job.rows; row++)
    if (w.row_sees_block(row))
      for (int32_t h = 0; h < w.job.group; h++)
        soften(w, row * w.job.group + h, w.row_from(row), w.row_to(row));
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
  const uint16_t* v = w.job.v + d;
  const auto some = [&](int32_t begin, int32_t end) {
    for (int32_t j = begin; j < end; j++) {
      const uint16_t* row = v + w.now->at[j];
      _Pragma("GCC unroll 16") for (int i = 0; i < Q; i++) {
        if (j < from[i] || j >= to[i]) continue;
        _Pragma("GCC unroll 16") for (int n = 0; n < N; n++) acc[i][n] =
            fma(set1(p[i * kBlock + j]), L::load(row + 16 * n), acc[i][n]);
      }
    }
  };
  some(any_from, all_from);
  const bool prefetches = query == 0 && d == 0;
  for (int32_t j = all_from; j < all_to; j++) {
    if (prefetches) w.v_ahead.next();
    const uint16_t* row = v + w.now->at[j];
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

template <class L>
void attend(const AttentionJob& job) {
  Walk w(job);
  const int32_t end = job.pos_begin + job.rows, begin = window_begin(job, 0) / kBlock * kBlock;
  w.ahead->locate(job, begin);
  if (job.cold) Pace(*w.ahead, job.k, 1).next();
  for (int32_t block = begin; block < end; block += kBlock) {
    enter_block(w, block, end);
    scores<L>(w);
    softmax(w);
    values<L>(w);
  }
  for (int32_t i = 0; i < w.queries; i++) {
    float* out = job.out + i / job.group * job.out_row + int64_t(i % job.group) * job.head_dim;
    const float* o = w.o + int64_t(i) * job.head_dim;
    for (int32_t d = 0; d < job.head_dim; d += 16) store(out + d, div(load(o + d), set1(w.l[i])));
  }
}

constexpr AttentionBodies kAttention = {{attend<LoadF16>, attend<LoadBf16>}};

}  // namespace
}  // namespace gapless
