// Who is admitted next, and how much of it: the order of the queue, the token budgets of a prefill batch, and
// the estimate of how much of their max_tokens requests really use.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <unordered_map>
#include <vector>

#include "scheduler/schedule_batch.h"

namespace gapless {

// lpm sorts by cached prefix only while at most this many wait; longer queues are served first come, first
// served (SGLang's number).
inline constexpr size_t kLpmQueueLimit = 128;
// Requests passed over in one pass before the scan of the queue ends, so that a flood of equal prompts does
// not cost a scan of it.
inline constexpr int32_t kMaxHeldPerPass = 128;
// max_tokens counts at most this much in estimates; it never changes where a request stops (SGLang's number).
inline constexpr int32_t kClipMaxTokensEstimate = 4096;

// The queue in the order in which it should be scanned. Retracted requests stay in front, oldest first. At
// most `limit` entries are needed.
std::vector<Req*> calc_priority(const std::deque<Req*>& waiting, SchedulePolicy policy,
                                const RadixCache& tree, std::mt19937_64& rng, size_t limit);

// The share of their remaining max_tokens that running requests are expected to use. SGLang's rules: starts
// at 0.7 (times schedule_conservativeness), falls a little with every decode step, jumps after a retraction,
// starts again when idle.
class NewTokenRatio {
 public:
  explicit NewTokenRatio(double schedule_conservativeness);
  double value() const { return value_; }
  void on_decode_step();
  // Over those that stay: what they have emitted plus 20 steps each, of what they may emit.
  void on_retract(int64_t output_tokens, int64_t max_tokens, int64_t requests);
  void reset() { value_ = init_; }

 private:
  double init_, min_, decay_, value_;
};

// Whole pages that a launched batch, or the one being composed, completes, by Req::page_hash.
class PagesBeingWritten {
 public:
  bool contains(uint64_t hash) const { return count_.contains(hash); }
  void add(uint64_t hash) { count_[hash]++; }
  void remove(uint64_t hash);
  size_t size() const { return count_.size(); }

 private:
  std::unordered_map<uint64_t, int32_t> count_;
};

enum class AddResult : uint8_t {
  kAdded,
  kHeld,     // passed over: its next page is being written by another; look at those behind it
  kNoToken,  // memory does not allow it: the scan ends
  kOther,    // the step's token budget is used up: the scan ends
};

// Fills the prefill rows of one batch within the step's budgets.
// Admission takes a request's slot, locks its cached prefix and allocates the pages of everything known about
// it, so that no later chunk can fail for memory. Only decode growth can, and that is answered by retraction.
class PrefillAdder {
 public:
  struct Budget {
    // Pages of the pool that must stay available: what decode rows need in this step.
    int32_t reserved_pages = 0;
    // Tokens that admitted requests are still expected to need.
    int64_t expected_tokens = 0;
    // Decode rows that will share the step.
    int32_t decode_rows = 0;
    // Nothing is admitted: the first request only has to fit, however large its estimate.
    bool alone = false;
  };
  PrefillAdder(const SchedulerConfig& config, KvMemory& memory, PagesBeingWritten& writing,
               const Budget& budget, ScheduleBatch& batch);

  // The next part of a request that was admitted before. False when the step has no room for any of it.
  bool add_chunked_req(Req& req);
  AddResult add_one_req(Req& req);

  // Prompt tokens of a step with so many decode rows.
  static int32_t chunk_tokens(const SchedulerConfig& config, int32_t decode_rows);
  // The tokens a request may still emit, as far as estimates go.
  static int32_t clipped_new_tokens(const Req& req);

 private:
  // How many of the tokens from `start` on go into this step; 0: none.
  int32_t cut(int32_t start, int32_t end) const;
  void append(Req& req, int32_t n_tokens);
  bool is_held(Req& req, int32_t cached_pages) const;
  bool fits(const Req& req, int32_t cached_pages) const;
  void take_pages(Req& req, const std::vector<int32_t>& cached);

  const SchedulerConfig& config_;
  KvMemory& memory_;
  PagesBeingWritten& writing_;
  Budget budget_;
  ScheduleBatch& batch_;
  int32_t rem_input_;  // prompt tokens per step
  int32_t rem_chunk_;  // and when prompts are cut
};

}  // namespace gapless
