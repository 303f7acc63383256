// The KV pool's pages as the scheduler sees them: who owns which. The memory itself belongs to the forward
// side.
//
// Every page is in exactly one state. `leased` means: no longer owned by a request or the tree, but still
// named by a launched batch, so not yet free. Pages 1 .. total() exist; page 0 is dump and never handed out.
// Scheduler thread only. A misuse (freeing twice, freeing what the tree owns) is a CHECK.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace gapless {

enum class PageState : uint8_t { kFree, kPrivate, kLeased, kTree };
inline constexpr int kPageStates = 4;
const char* page_state_name(PageState state);

class KvAllocator;

// Move-only ownership of some pages, in the order of the positions they hold. Gives them back exactly once:
// when destroyed or released. Private to a request until hold() turns it into a lease of the batches still in
// flight.
class KvLease {
 public:
  KvLease() = default;
  explicit KvLease(KvAllocator& allocator) : allocator_(&allocator) {}
  KvLease(KvLease&& other) noexcept { *this = std::move(other); }
  KvLease& operator=(KvLease&& other) noexcept;
  ~KvLease() { release(); }

  std::span<const int32_t> pages() const { return pages_; }
  int32_t size() const { return int32_t(pages_.size()); }
  void release();
  void hold();                    // private -> leased
  KvLease take_front(int32_t n);  // splits the first n pages off
  void append(KvLease&& other);   // same allocator and state

 private:
  friend class KvAllocator;
  KvAllocator* allocator_ = nullptr;
  std::vector<int32_t> pages_;
  PageState state_ = PageState::kPrivate;
};

class KvAllocator {
 public:
  // on_freed: called for every page the moment it becomes free (a simulated device poisons it). May be empty.
  using FreedHook = std::function<void(int32_t page)>;
  explicit KvAllocator(int32_t total_pages, FreedHook on_freed = {});

  int32_t total() const { return int32_t(states_.size()) - 1; }
  int32_t count(PageState state) const { return counts_[size_t(state)]; }
  int32_t free_pages() const { return count(PageState::kFree); }
  PageState state(int32_t page) const { return states_[page]; }

  // Adds n private pages to the lease. All or nothing: false, and nothing changed, when fewer are free.
  [[nodiscard]] bool extend(KvLease& lease, int32_t n);
  // The pages of a lease become the tree's; returns them.
  std::vector<int32_t> give_to_tree(KvLease&& lease);
  void free_tree_pages(std::span<const int32_t> pages);

  // What is wrong with the free list, the states and their counts against each other; empty when nothing is.
  std::string check_integrity() const;
  // Heals after a leak: takes the states as found at their owners (index = page; [0] ignored), frees
  // everything nobody owns. Returns how many pages were in another state. Leases keep working: an owner's
  // pages are in `owned`.
  int32_t rebuild(const std::vector<PageState>& owned);

 private:
  friend class KvLease;
  void move(int32_t page, PageState from, PageState to);
  void free(int32_t page, PageState from);

  std::vector<PageState> states_;
  int32_t counts_[kPageStates] = {};
  // Last in, first out: a page freed too early is written by the next owner at once, so a test sees it.
  std::vector<int32_t> free_list_;
  FreedHook on_freed_;
};

}  // namespace gapless
