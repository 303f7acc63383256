// The prefix cache: a radix tree over (namespace, token ids) that owns whole pages of KV. A page enters when
// the batch that wrote it has completed, and is shared by every request whose ids begin with the same pages.
// Page-granular: edges are cut only between pages.
//
// Locks: a request locks the path from its node to the root; what is locked is never evicted. Eviction takes
// the least recently used unlocked leaf, page by page from its end, by a logical clock (no wall clock: the
// same calls give the same tree everywhere). Laws, asserted by check_integrity(): evictable_pages() == pages
// of nodes without lock; lock(parent) >= sum of lock(children). Scheduler thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/kv_pool.h"

namespace gapless {

class RadixCache;

// One node; others may only compare and climb.
class RadixNode {
 public:
  const RadixNode* parent() const { return parent_; }  // nullptr: the root of a namespace
  uint64_t id() const { return id_; }                  // order of creation

 private:
  friend class RadixCache;
  RadixNode* parent_ = nullptr;
  uint64_t id_ = 0;
  std::vector<int32_t> ids_;    // pages_.size() * page_size
  std::vector<int32_t> pages_;  // empty only in a root
  int32_t lock_ref_ = 0;
  uint64_t last_access_ = 0;
  bool evictable_leaf_ = false;                                             // is in RadixCache::leaves_
  std::unordered_multimap<uint64_t, std::unique_ptr<RadixNode>> children_;  // by hash of the first page's ids
  std::string name_space_;                                                  // of a root
};

// Move-only lock on the first n_pages() pages of a sequence; given back exactly once, when destroyed or
// released. There is no unlocked match to hold on to, so a stale one cannot exist.
class CacheHandle {
 public:
  CacheHandle() = default;
  CacheHandle(CacheHandle&& other) noexcept { *this = std::move(other); }
  CacheHandle& operator=(CacheHandle&& other) noexcept;
  ~CacheHandle() { release(); }
  void release();
  explicit operator bool() const { return node_ != nullptr; }
  int32_t n_pages() const { return n_pages_; }

 private:
  friend class RadixCache;
  RadixCache* cache_ = nullptr;
  RadixNode* node_ = nullptr;
  int32_t n_pages_ = 0;
};

// A prefix that several cached sequences or running requests begin with.
struct SharedPrefix {
  int32_t tokens = 0;
  int32_t branches = 0;  // ways in which cached sequences go on behind it
  int32_t users = 0;     // locks: the requests that use it now
};

class RadixCache {
 public:
  RadixCache(KvAllocator& allocator, int32_t page_size);
  ~RadixCache();

  // Where `ids` ends in the tree: the deepest node reached and the length of the match in tokens. Changes
  // nothing. The node is valid until the tree changes. nullptr: the namespace is empty.
  struct Place {
    const RadixNode* node = nullptr;
    int32_t length = 0;
  };
  Place find(std::string_view name_space, std::span<const int32_t> ids) const;

  // Locks the longest cached prefix of `ids` and appends its pages to `pages`.
  CacheHandle match_prefix(std::string_view name_space, std::span<const int32_t> ids,
                           std::vector<int32_t>& pages);

  // A running request offers the whole pages of `ids` (its computed tokens) behind handle.n_pages(); `tail`
  // holds its private pages from there on. Where the tree has an equal page already, the request keeps its
  // own and the tree stays as it is: locking the tree's page too would let one request hold a pool twice.
  // Otherwise the pages move from tail to the tree and into the handle.
  void insert_unfinished(CacheHandle& handle, std::span<const int32_t> ids, KvLease& tail);
  // The same for a request that gives up its KV: pages the tree lacks move there, tail keeps the others. The
  // handle then covers what moved.
  void insert_finished(CacheHandle& handle, std::span<const int32_t> ids, KvLease& tail);

  // Frees unlocked pages until n are free or none is left; returns how many it freed.
  int32_t evict(int32_t n_pages);
  // Drops everything. Precondition: no locks. Returns the pages dropped.
  int32_t flush();

  int32_t evictable_pages() const { return evictable_pages_; }
  // Changes whenever find() could give another length.
  uint64_t version() const { return version_; }
  int32_t total_pages() const { return allocator_.count(PageState::kTree); }
  int32_t nodes() const { return nodes_; }  // without the roots
  // The longest shared prefixes, longest first, for people who watch: of the first `max_nodes` nodes met on
  // the way up from what `held` locks, then from the leaves used last. Costs max_nodes look-ups, whatever the
  // tree's size.
  std::vector<SharedPrefix> shared_prefixes(std::span<const CacheHandle* const> held, size_t max_nodes,
                                            size_t max_prefixes) const;
  // Locks as found in the tree: each handle counts once.
  int64_t handles() const;
  std::string check_integrity() const;
  template <class F>
  void for_each_page(const F& f) const {
    for (const auto& [name, root] : roots_) visit_pages(*root, f);
  }

 private:
  friend class CacheHandle;
  template <class F>
  static void visit_pages(const RadixNode& node, const F& f) {
    for (int32_t page : node.pages_) f(page);
    for (const auto& [hash, child] : node.children_) visit_pages(*child, f);
  }

  std::span<const int32_t> whole_pages(std::span<const int32_t> ids) const;
  RadixNode* child_of(const RadixNode& node, std::span<const int32_t> ids) const;
  int32_t common_pages(const RadixNode& node, std::span<const int32_t> ids) const;
  RadixNode& root(std::string_view name_space);
  // Cuts the node after n pages; returns the new upper part.
  RadixNode& split(RadixNode& node, int32_t n);
  RadixNode& add_leaf(RadixNode& parent, std::span<const int32_t> ids, KvLease&& pages);
  void attach(RadixNode& parent, std::unique_ptr<RadixNode> child);
  std::unique_ptr<RadixNode> detach(RadixNode& node);
  void touch(RadixNode& node);
  void lock(RadixNode& node);
  void unlock(RadixNode& node);
  void move_lock(CacheHandle& handle, RadixNode& to, int32_t n_pages);
  void refresh_leaf(RadixNode& node);
  void drop_if_empty(RadixNode& root);
  std::string check_node(const RadixNode& node, int32_t& unlocked, size_t& leaves, int32_t& nodes) const;

  KvAllocator& allocator_;
  const int32_t page_size_;
  std::unordered_map<std::string, std::unique_ptr<RadixNode>> roots_;
  struct LeafOrder {
    bool operator()(const RadixNode* a, const RadixNode* b) const {
      return a->last_access_ != b->last_access_ ? a->last_access_ < b->last_access_ : a->id_ < b->id_;
    }
  };
  // Unlocked leaves, least recently used first: a step that evicts a few pages does not look at the whole
  // tree.
  std::set<RadixNode*, LeafOrder> leaves_;
  int32_t evictable_pages_ = 0, nodes_ = 0;
  uint64_t clock_ = 0, next_id_ = 0, version_ = 0;
};

}  // namespace gapless
