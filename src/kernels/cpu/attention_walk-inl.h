// The state of an attention job while it goes from one KV block to the next; on the 16 lanes of a
// cpu/vec_*.h, which is included first.
#pragma once

#include "kernels/cpu/attention_blocks-inl.h"

namespace gapless {
namespace {

constexpr int32_t kMaxQueries = AttentionJob::kMaxQueries;

// The state of a job while it walks through the KV blocks.
struct Walk {
  const AttentionJob& job;
  int32_t queries;
  bool apart;      // every block is on its own: nothing is combined
  float* o;        // [query][head_dim]
  float* p;        // [query][kBlock] scores, then weights
  float* k_group;  // [head_dim][16]: a group of K without lanes, transposed
  int32_t block;   // first position of the current block
  BlockRows rows[2];
  const BlockRows* now = &rows[1];  // of this block
  BlockRows* ahead = &rows[0];      // of the block to come
  Pace k_ahead, v_ahead;
  alignas(64) float k_scale[kBlock], v_scale[kBlock];    // of the block's positions
  alignas(64) float m[kMaxQueries], l[kMaxQueries];      // running maximum and sum
  alignas(64) float m_b[kMaxQueries], l_b[kMaxQueries];  // of the block
  alignas(64) float c[kMaxQueries], c_b[kMaxQueries];    // factors of the combine

  Walk(const AttentionJob& j, bool blocks_apart)
      : job(j),
        queries(j.rows * j.group),
        apart(blocks_apart),
        o(j.scratch),
        p(o + int64_t(kMaxQueries) * j.head_dim),
        k_group(p + kMaxQueries * kBlock) {
    for (int32_t i = 0; i < kMaxQueries; i++) m[i] = l[i] = m_b[i] = l_b[i] = c[i] = c_b[i] = 0;
    for (int32_t i = 0; i < kBlock; i += 16) {  // masked lanes may be read
      store(k_scale + i, zero());
      store(v_scale + i, zero());
    }
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
  bool first_block_of(int32_t row) const { return apart || window_begin(job, row) >= block; }
};

float* partial_of(const AttentionJob& job, int32_t block) {
  const int64_t floats = AttentionJob::partial_floats(job.rows * job.group, job.head_dim);
  return job.partials + (block / kBlock - job.begin_block) * floats;
}

// Moves to the block at `block`, whose rows were located when it lay ahead. What follows is the next block
// or, at the end, the first one of the job that probably comes next.
template <class L>
void enter_block(Walk& w, int32_t block, int32_t end) {
  w.block = block;
  w.now = w.ahead;
  w.ahead = w.now == &w.rows[0] ? &w.rows[1] : &w.rows[0];
  w.k_ahead = w.v_ahead = {};
  const bool last = block + kBlock >= end;
  if (last && !w.job.next) return;
  const AttentionJob& job = last ? *w.job.next : w.job;
  w.ahead->locate(job, last ? job.begin_block * kBlock : block + kBlock);
  const int32_t tiles = k_has_lanes(w.job) ? (groups(*w.now) + kQkVectors - 1) / kQkVectors : groups(*w.now);
  const int32_t passes = w.job.head_dim / (16 * kPvVectors) + w.job.head_dim % (16 * kPvVectors) / 16;
  w.k_ahead = k_pace(*w.ahead, job.k, tiles * w.job.head_dim / kPaceElements);
  w.v_ahead = v_pace(*w.ahead, job.v, passes * (w.now->to - w.now->from));
  if (!L::kScaled) return;
  fetch_scales(*w.ahead, job.k);
  fetch_scales(*w.ahead, job.v);
}

}  // namespace
}  // namespace gapless
