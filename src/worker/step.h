// The device-side arrays of one step and the op that fills them.
#pragma once

#include <optional>
#include <vector>

#include "base/frozen.h"
#include "model/model.h"
#include "sampling/sampler.h"
#include "sampling/sampling_info.h"
#include "worker/launch_state.h"

namespace gapless {

// What outlives steps on the device: one entry per request slot. Written by ops only, in stream order.
struct DeviceSlots {
  int32_t* page_table;  // [slots][ld_page_table]
  int64_t ld_page_table;
  FutureEntry* future_map;  // [slots]
  SlotState** states;       // [slots]; null: never used
  float* pooled;            // [slots][ld_pooled] sums of hidden states, worker/pooling.h
  int32_t ld_pooled;        // ModelConfig::embedding_dim
  int32_t n_slots;
};

// Capacity of a step.
struct StepLimits {
  int32_t max_rows;  // tokens
  int32_t max_seqs;  // batch rows
  int32_t embedding_dim = 0;
};

// A range of a step's logit rows: at most `bound` of them, of which the device counts those that live.
struct LogitRange {
  int32_t first = 0, bound = 0;
  const int32_t* count = nullptr;
};

// One place in the ring of launched batches. The forward thread fills the first part; the step's first op
// (`take`) compacts the rows that still live into the arrays that every later op reads; host memory is valid
// after the step's event.
//
// A batch with masked rows is two steps of the device. The first one does everything but their sampling; the
// second one is queued when their sampling information is there. In between nothing else runs on the stream.
struct Step {
  static Result<std::unique_ptr<Step>> create(Device& device, StepLimits limits);
  // Forward thread, when the place is free.
  void reset(Frozen<ModelWorkerBatch> batch, const Sampler& sampler);

  StepLimits limits;
  std::optional<Frozen<ModelWorkerBatch>> batch;  // kept alive until the place is reused
  std::vector<SlotStatePtr>
      inits;  // parallel to batch->slot_inits; `take` swaps them in, former owners stay here until reuse
  LogitRange free_rows, masked_rows;  // the sampled rows that are masked, behind all other sampled ones
  LogitRange head_rows;    // both; where a row of them does not live, some row that does stands in its place
  LogitRange pooled_rows;  // whose hidden states are wanted and no logits, behind both
  SamplingInfo info;       // set before the second step

  // Device memory, one value per ...
  int32_t *ids, *positions, *slots;  // row
  AttentionTile* tiles;              // tile
  int32_t* logit_rows;               // logit row: its row
  LogitRow* logit_info;              // logit row
  struct Counts {
    int32_t rows, tiles, free_rows, masked_rows, head_rows, pooled_rows;
    uint64_t computed;  // the batch whose first step is complete
  } * counts;

  SampleResult* results;  // logit row
  struct RowPlace {
    RowStatus status;
    int32_t first_target, sampled;  // logit rows
  } * places;                       // batch row

  // Host memory, copied to by the step's last ops.
  SampleResult* host_results;
  RowPlace* host_places;
  float* host_embeddings;  // [batch rows that embed][embedding_dim]

  ForwardInputs inputs(const LogitRange& logits) const;
  StepTag tag() const { return {int32_t((*batch)->mode), int64_t((*batch)->input_ids.size())}; }

 private:
  Buffer device_memory_, host_memory_;
};

// Tiles that n rows of `seqs` sequences can need.
inline int32_t max_tiles(StepLimits limits) {
  return limits.max_rows / kAttentionTileRows + limits.max_seqs;
}

struct TakeParams {
  LaunchState* launch;  // alive until the step's event
  Step* step;           // not read when the launch was recalled
  DeviceSlots slots;
  const Sampler* sampler;
};
// Appends `take`: marks the batch taken (or ends the step, if it was recalled), applies page writes and slot
// inits, resolves placeholders, drops rows whose request ended by its last token, and writes the arrays of
// the step. One chunk.
void push_take(OpList& ops, const TakeParams& params);
// Appends the last op of a first step whose masked rows wait.
void push_computed(OpList& ops, const TakeParams& params);
// Appends the first op of the second step: gives each masked row its set of allowed tokens, and ends those
// that have none. One chunk. Ends the step if the launch was recalled, fails it if the first step did not get
// to its end.
void push_masks(OpList& ops, const TakeParams& params, int32_t vocab_size);
// Appends the step's last op: the KV of its rows is written. A step that fails does not get there, and so the
// rows of later steps that depend on it fail in their `take`.
void push_commit(OpList& ops, const TakeParams& params);

}  // namespace gapless
