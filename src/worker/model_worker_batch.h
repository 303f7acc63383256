// What a launch needs, and nothing else: plain data, frozen before it crosses to the forward side. It names
// request slots and pages, never a request object. It can be written to bytes and back, so that it may go to
// another process later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "sampling/slot_init.h"

namespace gapless {

enum class ForwardMode : uint8_t { kExtend, kDecode, kMixed, kIdle };
const char* forward_mode_name(ForwardMode mode);

// The input of a row whose token the host has not seen yet: the device replaces it by the last token that
// slot emitted.
inline constexpr int32_t placeholder(int32_t slot) {
  return -(slot + 1);
}
inline constexpr bool is_placeholder(int32_t id) {
  return id < 0;
}
inline constexpr int32_t placeholder_slot(int32_t id) {
  return -id - 1;
}

// Slot 0 and page 0 are dump: padding rows and rows without a request write there.
inline constexpr int32_t kDumpSlot = 0, kDumpPage = 0;

// page_table[slot][index] = page.
struct PageWrite {
  int32_t slot, index, page;
  friend bool operator==(const PageWrite&, const PageWrite&) = default;
};

// One sequence's part of the step: n_tokens consecutive tokens from position start_pos on.
struct BatchRow {
  int32_t slot = 0;
  uint32_t epoch =
      0;  // of the request's admission, as in its SlotInit: a result is matched by (request, epoch)
  int32_t input_begin = 0;  // into input_ids
  int32_t n_tokens = 0;
  int32_t start_pos = 0;
  bool emits = false;  // samples a token after its last position (false: all chunks of a prompt but the last)
  int32_t output_index = 0;  // index of the token it emits
  bool masked = false;       // it emits, and waits for its part of the SamplingInfo (PendingForward)
  // Prompt logprobs: for positions prompt_logprob_begin .. start_pos + n_tokens - 1 of the sequence the
  // logprob of the *next* prompt token; its targets are targets[...] below. -1: none.
  int32_t prompt_logprob_begin = -1;
  int32_t targets_begin =
      0;  // into prompt_targets: one target per such position that has a next prompt token
  int32_t n_targets = 0;
  // Embeddings: the hidden states of the row's last n_pooled positions are added to its slot's sum, which
  // begins anew at position pool_begin of the sequence.
  int32_t pool_begin = -1;
  int32_t n_pooled = 0;
  bool embeds = false;  // the sum is whole after this row: its mean is wanted
  friend bool operator==(const BatchRow&, const BatchRow&) = default;
};

struct ModelWorkerBatch {
  uint64_t id = 0;
  ForwardMode mode = ForwardMode::kIdle;
  std::vector<BatchRow> rows;
  std::vector<int32_t> input_ids;  // real ids, or placeholder(slot)
  std::vector<int32_t> prompt_targets;
  std::vector<PageWrite> page_writes;  // applied before the rows
  std::vector<SlotInit> slot_inits;    // applied before the rows
  friend bool operator==(const ModelWorkerBatch&, const ModelWorkerBatch&) = default;
};

bool has_masked_rows(const ModelWorkerBatch& batch);

std::vector<std::byte> to_bytes(const ModelWorkerBatch& batch);
// CHECKs on malformed bytes: they only ever come from to_bytes.
ModelWorkerBatch from_bytes(const std::vector<std::byte>& bytes);

enum class RowStatus : uint8_t {
  kOk,       // ran; if it emits, `token` is valid
  kDropped,  // the request had ended by its last token: `take` computed nothing, or its mask said so
  kFailed,   // the step, or one it depended on, failed: see BatchResult::status; or its mask never came
};

// Results of one row, same order as ModelWorkerBatch::rows.
struct RowResult {
  RowStatus status = RowStatus::kOk;
  int32_t token = -1;
  float logprob = 0;                   // when top_logprobs >= 0
  std::vector<TokenLogprob> top;       // descending
  std::vector<float> prompt_logprobs;  // n_targets of them
  std::vector<std::vector<TokenLogprob>> prompt_top;
  std::vector<float> embedding;  // of a row that embeds
};

struct BatchResult {
  uint64_t batch_id = 0;
  Status status;  // a device error: every row is kFailed
  std::vector<RowResult> rows;
  StepTimes times;  // on the device
};

}  // namespace gapless
