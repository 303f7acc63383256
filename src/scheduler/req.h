// One answer in the making: a choice of a request. Never leaves the scheduler thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sampling/stop_matcher.h"
#include "scheduler/kv_memory.h"
#include "scheduler/request.h"

namespace gapless {

// kWaiting -> kPrefill -> kDecode -> kFinished, from anywhere to kFinished, and back to kWaiting when
// retracted.
enum class ReqState : uint8_t {
  kWaiting,   // in the queue, new or retracted; holds nothing
  kPrefill,   // admitted; not all of its known tokens have been launched
  kDecode,    // one token a step
  kFinished,  // its last delta is out; a launched batch may still name it
};
const char* req_state_name(ReqState state);

struct Req;

// A request and its n choices.
struct ReqGroup {
  std::unique_ptr<const Request> request;
  std::vector<std::unique_ptr<Req>> choices;
  int32_t open = 0;            // choices that a list or a launched batch still names
  int32_t cached_tokens = -1;  // usage: of the choice admitted first, at its first admission
};

struct Req {
  Req(ReqGroup& group, int32_t choice, uint64_t arrival);

  ReqState state() const { return state_; }
  // The only way to change the state; CHECKs that the step is legal.
  void advance(ReqState to);

  const Request& request() const { return *group.request; }
  int32_t len() const { return int32_t(ids.size()); }
  int32_t output_len() const { return len() - prompt_len; }
  bool admitted() const { return state_ == ReqState::kPrefill || state_ == ReqState::kDecode; }
  bool wants_embedding() const { return request().embed_begin >= 0; }
  bool wants_prompt_logprobs() const { return request().prompt_logprob_begin >= 0 && !first_delta_sent; }
  // All tokens it may emit have been launched: it ends by length in the step in flight and is not scheduled
  // again.
  bool launched_to_length() const { return launched_outputs >= params.max_tokens; }
  // The tokens whose KV a cached prefix may replace: the last one is always computed, for its logits or its
  // hidden state.
  std::span<const int32_t> cacheable_ids() const;
  // Hash of the namespace and the ids of pages 0 .. index: equal for two requests iff they would write the
  // same page (up to collisions, which cost a step of waiting and nothing else).
  uint64_t page_hash(int32_t index, int32_t page_size);
  // Forgets everything that belongs to the admission that ends; results of rows launched under it are told
  // apart by the epoch.
  void reset_for_retract();

  ReqGroup& group;
  const int32_t choice;
  const uint64_t arrival;  // order of arrival, unique
  const int32_t prompt_len;
  SamplingParams params;
  std::vector<int32_t> ids;  // prompt and output, real tokens only

  // Of the current admission.
  uint32_t epoch = 0;  // unique among all admissions; 0: none
  ReqResources held;
  int32_t kv_launched = 0;       // positions whose KV is written or being written
  int32_t kv_done = 0;           // positions whose KV is written
  int32_t launched_outputs = 0;  // tokens emitted or being computed

  int32_t in_flight = 0;       // launched batches that name it and whose result was not processed
  uint64_t last_batch_id = 0;  // the last of them
  bool retracted = false;      // waiting again
  double queue_seconds = -1;   // arrival to first admission; negative: it has not come

  // Output.
  StopMatcher stop_matcher;
  std::unique_ptr<GrammarMatcher> grammar;  // has seen all of the output; null: any token may come
  int64_t visible_bytes = 0;
  bool first_delta_sent = false;
  std::vector<OutputToken> prompt_logprobs;

  // Length of its cached prefix, as of the given version of the tree; only a hint for the order of the queue.
  int32_t matched_hint = 0;
  uint64_t matched_version = UINT64_MAX;

 private:
  ReqState state_ = ReqState::kWaiting;
  std::vector<uint64_t> page_hashes_;
};

}  // namespace gapless
