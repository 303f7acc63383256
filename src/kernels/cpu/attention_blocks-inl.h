// Where the KV blocks of an attention job lie, how their elements are read, and how a block is prefetched; on
// the 16 lanes of a cpu/vec_*.h, which is included first.
#pragma once

#include "kernels/cpu/bodies.h"

namespace gapless {
namespace {

constexpr int32_t kBlock = 64;  // kKvBlock of kernels/ops.h

// How 16 elements become lanes. kScaled: each position has a scale.
struct LoadF16 {
  using Element = uint16_t;
  static constexpr bool kScaled = false;
  static V load(const uint16_t* p) { return load_f16(p); }
};
struct LoadBf16 {
  using Element = uint16_t;
  static constexpr bool kScaled = false;
  static V load(const uint16_t* p) { return load_bf16(p); }
};
struct LoadI8 {
  using Element = int8_t;
  static constexpr bool kScaled = true;
  static V load(const int8_t* p) { return load_i8(p); }
};
// K of type L that was transposed into scratch.
template <class L>
struct LoadTransposed {
  using Element = float;
  static constexpr bool kScaled = L::kScaled;
  static V load(const float* p) { return gapless::load(p); }
};

inline int32_t window_begin(const AttentionJob& job, int32_t row) {
  const int32_t begin = job.pos_begin + row - job.window + 1;
  return job.window > 0 && begin > 0 ? begin : 0;
}

// Are 16 positions of K the lanes of a vector?
inline bool k_has_lanes(const AttentionJob& job) {
  return job.page_size % 16 == 0;
}

// The part of a KV block that some row of a job sees: positions from .. to - 1, relative to the block, and
// where their rows are, in bytes. Where K has lanes, also those of the other positions of their groups of 16:
// at[16 g] is then where group g begins, in K and V alike.
struct BlockRows {
  const AttentionJob* job;
  int32_t block, from, to;
  int64_t at[kBlock];

  // Where the positions that are located begin and end.
  int32_t first() const { return k_has_lanes(*job) ? from / 16 * 16 : from; }
  int32_t last() const { return k_has_lanes(*job) ? (to + 15) / 16 * 16 : to; }

  void locate(const AttentionJob& j, int32_t block_begin) {
    job = &j;
    block = block_begin;
    const int32_t begin = window_begin(j, 0) - block, end = j.pos_begin + j.rows - block;
    from = begin > 0 ? begin : 0;
    to = end < kBlock ? end : kBlock;
    const int32_t first = this->first(), last = this->last();
    int32_t page = (block + first) / j.page_size, offset = (block + first) % j.page_size;
    for (int32_t i = first; i < last; i++) {
      at[i] = int64_t(j.pages[page]) * j.page_stride + int64_t(offset) * j.row_bytes;
      if (++offset == j.page_size) {
        offset = 0;
        page++;
      }
    }
  }
};

// Prefetches K or V of a block line by line, evenly over `calls` calls. KV comes from memory in pieces as
// short as a page, too short for the hardware's prefetcher, and a burst of prefetches is dropped when the
// core's miss buffers are full: so they are spread over all the work on the block before. Measured (Zen 5,
// two threads, 4 heads of 256 on one KV head, 230 positions; rows of K and V during the first quarter of the
// work, then so): 54 and 42 us with 8 sequences, 312 and 245 with 32.
struct Pace {
  const BlockRows* rows = nullptr;
  const std::byte* base = nullptr;
  int32_t row = 0, end = 0, line = 0, lines = 0;  // the next one: cache line `line` of `lines` of a row
  int32_t due = 0, step = 0;                      // lines * 2^16

  Pace() = default;
  // Rows from .. to - 1, which are located.
  Pace(const BlockRows& r, const std::byte* b, int32_t from, int32_t to, int32_t calls)
      : rows(&r),
        base(b),
        row(from),
        end(to),
        lines((r.job->row_bytes + 63) / 64),
        due(0xffff),
        step((to - from) * lines * 65536 / calls) {}
  void next() {
    for (due += step; due > 0xffff; due -= 0x10000) one();
  }

 private:
  void one() {
    if (row == end) return;
    fetch(base + rows->at[row] + 64 * line);
    if (++line < lines) return;
    line = 0;
    row++;
  }
};
// Where K has lanes, a group is read whole for any position of it.
inline Pace k_pace(const BlockRows& rows, const std::byte* k, int32_t calls) {
  return {rows, k, rows.first(), rows.last(), calls};
}
inline Pace v_pace(const BlockRows& rows, const std::byte* v, int32_t calls) {
  return {rows, v, rows.from, rows.to, calls};
}

// Where the scale of a located position is, K's or V's: behind the elements of its page. Those of a group of
// 16 lie side by side where K has lanes.
inline const float* scale_of(const BlockRows& rows, const std::byte* base, int32_t i) {
  const AttentionJob& job = *rows.job;
  const int32_t offset = (rows.block + i) % job.page_size;
  const std::byte* page_end = base + rows.at[i] + int64_t(job.page_size - offset) * job.row_bytes;
  return reinterpret_cast<const float*>(page_end) + offset;
}
inline void read_scales(const BlockRows& rows, const std::byte* base, float* scales) {
  if (k_has_lanes(*rows.job)) {
    for (int32_t i = rows.first(); i < rows.last(); i += 16) store(scales + i, load(scale_of(rows, base, i)));
  } else {
    for (int32_t i = rows.first(); i < rows.last(); i++) scales[i] = *scale_of(rows, base, i);
  }
}
inline void fetch_scales(const BlockRows& rows, const std::byte* base) {
  const int32_t step = k_has_lanes(*rows.job) ? 16 : 1;
  for (int32_t i = rows.first(); i < rows.last(); i += step) fetch(scale_of(rows, base, i));
}

// The groups of 16 positions that the rows belong to.
inline int32_t groups(const BlockRows& rows) {
  return (rows.to + 15) / 16 - rows.from / 16;
}
// Elements of K between two rounds of prefetches.
constexpr int32_t kPaceElements = 4;

}  // namespace
}  // namespace gapless
