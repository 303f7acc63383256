// Request slots and their page table rows, the scheduler's copy. The device has its own copy; changes reach
// it as PageWrites inside batches. Slot 0 is dump. A slot is one of 2 x max_running_requests + 1, because an
// ended request keeps its slot until its last launched batch is done. Scheduler thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gapless {

class ReqToTokenPool;

// Move-only ownership of a slot; goes back once, when destroyed or released.
class ReqSlot {
 public:
  ReqSlot() = default;
  ReqSlot(ReqSlot&& other) noexcept { *this = std::move(other); }
  ReqSlot& operator=(ReqSlot&& other) noexcept;
  ~ReqSlot() { release(); }
  void release();
  explicit operator bool() const { return pool_ != nullptr; }
  int32_t id() const { return id_; }  // 0 (dump) when there is none

 private:
  friend class ReqToTokenPool;
  ReqToTokenPool* pool_ = nullptr;
  int32_t id_ = 0;
};

class ReqToTokenPool {
 public:
  ReqToTokenPool(int32_t slots, int32_t max_pages_per_request);

  int32_t slots() const { return int32_t(lengths_.size()); }
  int32_t free_slots() const { return int32_t(free_list_.size()); }
  int32_t used_slots() const { return slots() - 1 - free_slots(); }
  // Precondition: free_slots() > 0.
  ReqSlot allocate();
  // Appends a page to the row; returns its index. A row is never rewritten, so pages only ever get appended.
  int32_t append_page(const ReqSlot& slot, int32_t page);
  std::span<const int32_t> row(int32_t slot) const {
    return {&rows_[size_t(slot) * max_pages_], size_t(lengths_[slot])};
  }

  // Heals after a leak: `owned` are the slots that somebody has. Returns how many others were not free.
  int32_t rebuild(const std::vector<int32_t>& owned);

 private:
  friend class ReqSlot;
  void free(int32_t slot);

  const int32_t max_pages_;
  std::vector<int32_t> rows_;
  std::vector<int32_t> lengths_;
  std::vector<bool> used_;
  std::vector<int32_t> free_list_;
};

}  // namespace gapless
