// The scheduler's view of the KV pool: the allocator, the prefix cache that owns the shared pages, and the
// page table rows.
#pragma once

#include <utility>

#include "cache/kv_pool.h"
#include "cache/radix_cache.h"
#include "cache/req_to_token_pool.h"
#include "scheduler/scheduler_config.h"

namespace gapless {

// What a request holds while it is admitted. Giving it back is one destructor: slot, lock on the cached
// prefix and private pages go back together, once.
struct ReqResources {
  ReqSlot slot;
  CacheHandle prefix;  // pages [0, prefix.n_pages()) of the row belong to the tree
  KvLease tail;        // the pages behind them
};

// Scheduler thread only.
struct KvMemory {
  KvMemory(const SchedulerConfig& config, KvAllocator::FreedHook on_page_freed)
      : allocator(config.max_total_pages(), std::move(on_page_freed)),
        tree(allocator, config.page_size),
        rows(config.request_slots(), config.max_pages_per_request()) {}

  // Pages that an allocation can get: free ones and those the tree can give up.
  int32_t available_pages() const { return allocator.free_pages() + tree.evictable_pages(); }

  // Precondition: n <= available_pages(). Evicts as many cached pages as are missing, and no more.
  void allocate(KvLease& lease, int32_t n) {
    if (n > allocator.free_pages()) tree.evict(n - allocator.free_pages());
    const bool enough = allocator.extend(lease, n);
    CHECK(enough, "{} pages wanted, {} free, {} evictable", n, allocator.free_pages(),
          tree.evictable_pages());
  }

  KvAllocator allocator;
  RadixCache tree;
  ReqToTokenPool rows;
  uint32_t admissions = 0;  // epochs handed out
};

}  // namespace gapless
