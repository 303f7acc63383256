// Embeddings: the mean of a sequence's hidden states, which grows with its chunks.
#pragma once

#include "model/model.h"
#include "worker/step.h"

namespace gapless {

// Appends the op that adds the hidden states of the step's pooled rows (row i of `hidden` is pooled row i) to
// the sums of their slots, one position after the other, so that a sum is the same bits however the sequence
// was cut; and divides the sums that are whole by their number of positions. One chunk.
void push_pool(OpList& ops, const Step& step, const DeviceSlots& slots, const HiddenStates& hidden);

// Appends the copies of the sums that are whole to step.host_embeddings, in the order of their batch rows.
void push_embedding_copies(Device& device, OpList& ops, const Step& step, const DeviceSlots& slots);

}  // namespace gapless
