// Sampling on the device: the exact state of every request slot, and the ops that turn logits into tokens.
//
// Order per row (docs/sampling.md): logprobs from the raw logits; then logit_bias, frequency and presence
// penalty, repetition penalty, ban of end tokens until min_tokens, and what the row's mask does not allow;
// then argmax, or temperature, top_k, top_p, min_p and one draw.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/ops.h"
#include "sampling/slot_init.h"

namespace gapless {

inline constexpr int32_t kSampleRow = -1, kSkipRow = -2;

// One row of logits of a step. Written by ops before the sampler's.
struct LogitRow {
  int32_t slot;    // whose parameters and counts apply
  int32_t target;  // >= 0: a prompt position; the logprob of this token is wanted and nothing is sampled.
                   // kSampleRow; kSkipRow: nothing is wanted, no state moves
  // Of a sampled row: the tokens that may be drawn (sampling_info.h), at least one. Null: all. Where bias and
  // bans leave none of them, the lowest one is emitted all the same: a grammar is never broken.
  const uint32_t* allowed = nullptr;
  int32_t forced = -1;  // the only token that is allowed, if there is one: it is taken without sampling
};

// What a row of logits gave, in host result memory. Valid after the step's event.
struct SampleResult {
  int32_t token;  // sampled; -1 for a prompt position and a row that was skipped
  float logprob;  // of `token` or of the target, when the slot's top_logprobs >= 0
  int32_t n_top;
  TokenLogprob top[kMaxTopLogprobs];  // by descending logit, equal ones by ascending id
};

// What the device knows of a request slot: whose admission it is and the last token it emitted, which is what
// a placeholder resolves to.
struct FutureEntry {
  uint32_t epoch = 0;  // of the admission, from its SlotInit; 0: none
  int32_t kv_end = 0;  // positions whose KV is written
  int32_t token = -1;
  int32_t output_index = -1;  // index of `token` in the answer: a reader checks that it is the one it expects
};

// Parameters, token counts and position in the random stream of one request slot. Built on the host (it may
// allocate), handed to the device by pointer in the step that admits the request, and from then on touched by
// the device only.
class SlotState;
struct SlotStateDeleter {
  void operator()(SlotState* state) const;
};
using SlotStatePtr = std::unique_ptr<SlotState, SlotStateDeleter>;

// Host half: forward thread. Device half: the ops.
class Sampler {
 public:
  // max_rows: rows per push(); eos_ids ascending.
  static Result<std::unique_ptr<Sampler>> create(Device& device, int32_t vocab_size,
                                                 std::vector<int32_t> eos_ids, int32_t max_rows);
  ~Sampler();

  // Allocates everything the request will need until its end, so that the device never does.
  SlotStatePtr prepare(const SlotInit& init) const;

  struct Params {
    Rows rows;  // logit rows of this group: row i of `logits` is logit_rows[rows.begin + i]
    const LogitRow* logit_rows;
    float* logits;  // modified in place
    int64_t ld;
    SlotState* const* slots;  // [request slots]
    FutureEntry* future_map;  // [request slots]; written for sampled rows
    SampleResult* results;    // [n logit rows], indexed like logit_rows
  };
  // Appends the ops that sample a group of rows and advance their slots' state.
  void push(OpList& ops, const Params& params);

  // For the step's first op: what decides whether a row has ended. Device threads.
  static const SamplingParams& params_of(const SlotState& state);
  std::span<const int32_t> eos_ids() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gapless
