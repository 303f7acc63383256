// The batch under construction, and after its launch the scheduler's half of it: which request each row is.
// What crosses to the forward side is frozen from it and never reopened; freezing again (after a recall)
// gives a new batch with a new id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/frozen.h"
#include "scheduler/req.h"
#include "worker/model_worker_batch.h"

namespace gapless {

// A launched row is (request, epoch): a result whose epoch is old belongs to an admission that has ended.
struct ScheduledRow {
  Req* req;
  uint32_t epoch;
  bool prefill;    // part of a prompt (or, after a retraction, of prompt and output), else one decoded token
  bool completes;  // prefill: reaches the end of what is known
  bool emits;
  bool masked;      // emits, and waits for a mask of its grammar
  int32_t end_pos;  // KV of positions below it is there once the batch has completed
  int32_t output_index;
};

class ScheduleBatch {
 public:
  explicit ScheduleBatch(int32_t page_size) : page_size_(page_size) {}

  bool empty() const { return rows_.empty(); }
  std::span<const ScheduledRow> rows() const { return rows_; }
  int32_t n_prefill_rows() const { return n_prefill_; }
  int32_t n_decode_rows() const { return int32_t(rows_.size()) - n_prefill_; }
  // Prompt tokens.
  int32_t n_prefill_tokens() const { return n_tokens() - n_decode_rows(); }
  int32_t n_tokens() const { return int32_t(input_ids_.size()); }
  ForwardMode mode() const;
  bool has_masked_rows() const;
  // Hashes (Req::page_hash) of the whole pages that its prefill rows complete.
  std::span<const uint64_t> pages_written() const { return pages_written_; }

  // The (re)admission of a request that has its slot and pages: everything known about it goes to the forward
  // side.
  void init_slot(const Req& req, const KvMemory& memory);
  // Whether requests may be admitted to it: not when others had to be sent back for memory, nor when the
  // step's tokens or the memory were not enough for one that waits.
  bool admits() const { return admits_; }
  void set_admits(bool admits) { admits_ = admits; }

  void add_prefill(Req& req, int32_t n_tokens);
  void add_decode(Req& req);
  void reserve_rows(size_t more);
  // The last page of the request's row is new.
  void add_page_write(const Req& req, const KvMemory& memory);

  Frozen<ModelWorkerBatch> freeze(uint64_t batch_id) const;

 private:
  void add_prompt_targets(const Req& req, BatchRow& row);
  static void add_pooled(const Req& req, BatchRow& row);

  int32_t page_size_;
  std::vector<ScheduledRow> rows_;
  std::vector<BatchRow> batch_rows_;
  std::vector<int32_t> input_ids_;
  std::vector<int32_t> prompt_targets_;
  std::vector<PageWrite> page_writes_;
  std::vector<SlotInit> slot_inits_;
  std::vector<uint64_t> pages_written_;
  int32_t n_prefill_ = 0;
  bool admits_ = true;
};

}  // namespace gapless
