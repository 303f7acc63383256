// The model of the simulated accelerator. Its KV is what it was given: K of a position is the token id, V the
// position; its logits are a hash of what it reads back through the page table (sim_logits.h). So a page that
// is wrong or was freed too early, a stale future token or a row that was lost or shifted changes the answer.
// It reports the work of the model in its profile (OpContext::work) and runs on any device.
#pragma once

#include <memory>

#include "device/sim/sim_profile.h"
#include "model/registry.h"
#include "model/sim/sim_logits.h"

namespace gapless {

inline SimReadback sim_readback(const SimModel& model) {
  return model.reads_all ? SimReadback::kAll : SimReadback::kSample;
}

// Of a file made by sim_model_file(): its profile is named by the key sim.profile.
Result<std::unique_ptr<Model>> load_sim(const GgufFile& file, Device& device, const LoadOptions& options);

std::unique_ptr<Model> make_sim_model(const SimProfile& profile);

// A hidden state: the first logits of its row, all that tells one context from another.
inline constexpr int32_t kSimEmbeddingDim = 16;

// Work of a step: the weights once if there are rows, each sequence's KV up to its last position in this
// step, and per row two FLOPs per weight and the attention to all positions up to its own.
OpWork sim_work(const SimModel& model, const ForwardInputs& in);

}  // namespace gapless
