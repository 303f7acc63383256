// What runs at one moment, for people who watch: made on the scheduler's thread between two steps and moved
// away. Plain numbers and names; no token, no text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/radix_cache.h"
#include "scheduler/scheduler_metrics.h"

namespace gapless {

// What one snapshot shows at most, so that its cost has a bound: 8 us with 32 requests, 39 us with 1,000.
inline constexpr size_t kSnapshotRequests = 200, kSnapshotPrefixes = 10, kSnapshotNodes = 256;

enum class RequestPhase : uint8_t { kWaiting, kPrefill, kDecode, kRetracted };
const char* request_phase_name(RequestPhase phase);

// One choice of a request. Counts are tokens.
struct RequestRow {
  uint64_t id = 0;  // RequestId
  std::string rid;
  int32_t choice = 0;
  RequestPhase phase = RequestPhase::kWaiting;
  int32_t prompt = 0, cached = 0;  // cached: of the prompt, as usage counts it
  int32_t computed = 0;            // prompt and output whose KV is there; 0 while it waits
  int32_t output = 0, max_output = 0;
  double age_seconds = 0;    // since its arrival
  double queue_seconds = 0;  // until it was admitted first, or until now
};

// Pages by state; their sum is the pool. `evictable` are those of the tree that nobody uses.
struct KvPages {
  int32_t page_size = 0;
  int32_t free = 0, tree = 0, in_use = 0, leased = 0;
  int32_t evictable = 0;
};

struct SchedulerSnapshot {
  double at = 0;  // steady_seconds()
  SchedulerStats stats;
  int64_t retracted = 0;             // of those that wait
  std::vector<RequestRow> requests;  // those that run, then those that wait in the order of the queue
  int64_t requests_left_out = 0;
  KvPages pages;
  int32_t cache_nodes = 0;
  std::vector<SharedPrefix> prefixes;  // longest first
};

}  // namespace gapless
