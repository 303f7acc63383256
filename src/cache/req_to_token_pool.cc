#include "cache/req_to_token_pool.h"

#include <utility>

#include "base/check.h"

namespace gapless {

ReqSlot& ReqSlot::operator=(ReqSlot&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = std::exchange(other.pool_, nullptr);
  id_ = std::exchange(other.id_, 0);
  return *this;
}

void ReqSlot::release() {
  if (pool_) std::exchange(pool_, nullptr)->free(std::exchange(id_, 0));
}

ReqToTokenPool::ReqToTokenPool(int32_t slots, int32_t max_pages_per_request)
    : max_pages_(max_pages_per_request),
      rows_(size_t(slots) * max_pages_per_request),
      lengths_(slots),
      used_(slots) {
  CHECK_GT(slots, 1);
  for (int32_t slot = slots - 1; slot >= 1; slot--) free_list_.push_back(slot);
}

ReqSlot ReqToTokenPool::allocate() {
  CHECK(!free_list_.empty(), "no free request slot of {}", slots());
  ReqSlot slot;
  slot.pool_ = this;
  slot.id_ = free_list_.back();
  free_list_.pop_back();
  used_[slot.id_] = true;
  lengths_[slot.id_] = 0;
  return slot;
}

void ReqToTokenPool::free(int32_t slot) {
  CHECK(slot > 0 && slot < slots() && used_[slot], "slot {} is not in use", slot);
  used_[slot] = false;
  lengths_[slot] = 0;
  free_list_.push_back(slot);
}

int32_t ReqToTokenPool::append_page(const ReqSlot& slot, int32_t page) {
  CHECK(slot.pool_ == this && used_[slot.id_]);
  int32_t& length = lengths_[slot.id_];
  CHECK_LT(length, max_pages_);
  rows_[size_t(slot.id_) * max_pages_ + length] = page;
  return length++;
}

int32_t ReqToTokenPool::rebuild(const std::vector<int32_t>& owned) {
  const int32_t before = used_slots();
  std::vector<bool> used(slots());
  for (int32_t slot : owned) used[slot] = true;
  free_list_.clear();
  for (int32_t slot = slots() - 1; slot >= 1; slot--) {
    if (!used[slot]) free_list_.push_back(slot);
  }
  used_ = std::move(used);
  return before - used_slots();
}

}  // namespace gapless
