#include "cache/kv_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gapless {

const char* page_state_name(PageState state) {
  static constexpr const char* kNames[kPageStates] = {"free", "private", "leased", "tree"};
  return kNames[size_t(state)];
}

KvLease& KvLease::operator=(KvLease&& other) noexcept {
  if (this == &other) return *this;
  release();
  allocator_ = other.allocator_;
  pages_ = std::exchange(other.pages_, {});
  state_ = std::exchange(other.state_, PageState::kPrivate);
  return *this;
}

void KvLease::release() {
  for (int32_t page : pages_) allocator_->free(page, state_);
  pages_.clear();
  state_ = PageState::kPrivate;
}

void KvLease::hold() {
  if (state_ == PageState::kLeased) return;
  for (int32_t page : pages_) allocator_->move(page, PageState::kPrivate, PageState::kLeased);
  state_ = PageState::kLeased;
}

KvLease KvLease::take_front(int32_t n) {
  CHECK(n >= 0 && n <= size(), "take {} of {} pages", n, size());
  KvLease front;
  front.allocator_ = allocator_;
  front.state_ = state_;
  front.pages_.assign(pages_.begin(), pages_.begin() + n);
  pages_.erase(pages_.begin(), pages_.begin() + n);
  return front;
}

void KvLease::append(KvLease&& other) {
  if (other.pages_.empty()) return;
  CHECK(allocator_ == other.allocator_ && (pages_.empty() || state_ == other.state_));
  state_ = other.state_;
  pages_.insert(pages_.end(), other.pages_.begin(), other.pages_.end());
  other.pages_.clear();
}

KvAllocator::KvAllocator(int32_t total_pages, FreedHook on_freed)
    : states_(size_t(total_pages) + 1, PageState::kFree), on_freed_(std::move(on_freed)) {
  CHECK_GT(total_pages, 0);
  counts_[size_t(PageState::kFree)] = total_pages;
  for (int32_t page = total_pages; page >= 1; page--) free_list_.push_back(page);
}

void KvAllocator::move(int32_t page, PageState from, PageState to) {
  CHECK(page > 0 && page <= total(), "page {} of {}", page, total());
  CHECK(states_[page] == from, "page {} is {}, not {}", page, page_state_name(states_[page]),
        page_state_name(from));
  states_[page] = to;
  counts_[size_t(from)]--;
  counts_[size_t(to)]++;
}

void KvAllocator::free(int32_t page, PageState from) {
  move(page, from, PageState::kFree);
  free_list_.push_back(page);
  if (on_freed_) on_freed_(page);
}

bool KvAllocator::extend(KvLease& lease, int32_t n) {
  CHECK(lease.allocator_ == this && lease.state_ == PageState::kPrivate);
  if (n > int32_t(free_list_.size())) return false;
  for (int32_t i = 0; i < n; i++) {
    const int32_t page = free_list_.back();
    free_list_.pop_back();
    move(page, PageState::kFree, PageState::kPrivate);
    lease.pages_.push_back(page);
  }
  return true;
}

std::vector<int32_t> KvAllocator::give_to_tree(KvLease&& lease) {
  for (int32_t page : lease.pages_) move(page, lease.state_, PageState::kTree);
  return std::exchange(lease.pages_, {});
}

void KvAllocator::free_tree_pages(std::span<const int32_t> pages) {
  for (int32_t page : pages) free(page, PageState::kTree);
}

std::string KvAllocator::check_integrity() const {
  int32_t counts[kPageStates] = {};
  for (int32_t page = 1; page <= total(); page++) counts[size_t(states_[page])]++;
  for (int s = 0; s < kPageStates; s++) {
    if (counts[s] != counts_[s]) {
      return fmt::format("{} pages are {}, counted {}", counts[s], page_state_name(PageState(s)), counts_[s]);
    }
  }
  std::vector<bool> listed(states_.size());
  for (int32_t page : free_list_) {
    if (page < 1 || page > total() || listed[page])
      return fmt::format("page {} is twice in the free list", page);
    if (states_[page] != PageState::kFree) {
      return fmt::format("page {} in the free list is {}", page, page_state_name(states_[page]));
    }
    listed[page] = true;
  }
  if (int32_t(free_list_.size()) != free_pages()) {
    return fmt::format("{} pages are free, {} are in the free list", free_pages(), free_list_.size());
  }
  return {};
}

int32_t KvAllocator::rebuild(const std::vector<PageState>& owned) {
  CHECK_EQ(owned.size(), states_.size());
  int32_t differences = 0;
  std::fill(std::begin(counts_), std::end(counts_), 0);
  free_list_.clear();
  for (int32_t page = total(); page >= 1; page--) {
    differences += states_[page] != owned[page];
    states_[page] = owned[page];
    counts_[size_t(owned[page])]++;
    if (owned[page] == PageState::kFree) free_list_.push_back(page);
  }
  return differences;
}

}  // namespace gapless
