// The ops that sample a group of rows. Only sampler.cc includes this.
//
//   plan     1 chunk      which rows want logprobs, which are sampled
//   logprobs row x block  maxima and sum of exponentials of the raw logits, for rows that want logprobs
//   change   row          a row's logprobs and most likely tokens; bias, penalties and bans change the logits
//                         in place
//   scan     row x block  the mask; maximum, and for a draw the sum of exponentials, of the changed logits;
//                         not of a row whose mask leaves one token
//   finish   row          the token; the slot moves on
#pragma once

#include "sampling/row_sampler.h"
#include "sampling/sampler.h"
#include "sampling/slot_state.h"

namespace gapless {

// Device memory that the ops of one group hand to each other; r is the row within the group, b the block.
struct SamplerWork {
  int32_t vocab, n_blocks;
  const BlockMath* math;
  struct Counts {
    int32_t rows, raw, drawn, sampled;
  };
  Counts* counts;
  int32_t *raw_rows, *sampled_rows;  // lists of r; sampled rows: those that are drawn, then the forced ones
  BlockStats* raw;                   // [r][b]
  BlockStats* changed;               // [r][b]
  float* group_max;     // [r][b][kGroupsPerBlock]: of the raw logits from logprobs to change, then of the
                        // changed ones
  double* log_sum_exp;  // [r]
};

struct SamplerOpParams {
  Sampler::Params p;
  SamplerWork w;
};

void push_sampler_ops(OpList& ops, const SamplerOpParams& params);

}  // namespace gapless
