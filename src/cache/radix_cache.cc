#include "cache/radix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gapless {

namespace {
// FNV-1a over the ids of one page. Only a bucket choice: the ids themselves are compared.
uint64_t page_hash(std::span<const int32_t> ids) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (int32_t id : ids) h = (h ^ uint32_t(id)) * 0x100000001b3ull;
  return h ^ (h >> 29);
}
}  // namespace

CacheHandle& CacheHandle::operator=(CacheHandle&& other) noexcept {
  if (this == &other) return *this;
  release();
  cache_ = std::exchange(other.cache_, nullptr);
  node_ = std::exchange(other.node_, nullptr);
  n_pages_ = std::exchange(other.n_pages_, 0);
  return *this;
}

void CacheHandle::release() {
  if (node_) cache_->unlock(*std::exchange(node_, nullptr));
  n_pages_ = 0;
}

RadixCache::RadixCache(KvAllocator& allocator, int32_t page_size)
    : allocator_(allocator), page_size_(page_size) {
  CHECK_GT(page_size, 0);
}

RadixCache::~RadixCache() {
  for_each_page([this](int32_t page) { allocator_.free_tree_pages({&page, 1}); });
}

std::span<const int32_t> RadixCache::whole_pages(std::span<const int32_t> ids) const {
  return ids.first(ids.size() / page_size_ * page_size_);
}

RadixNode* RadixCache::child_of(const RadixNode& node, std::span<const int32_t> ids) const {
  if (ids.empty()) return nullptr;
  const auto page = ids.first(page_size_);
  auto [begin, end] = node.children_.equal_range(page_hash(page));
  for (auto it = begin; it != end; ++it) {
    if (std::equal(page.begin(), page.end(), it->second->ids_.begin())) return it->second.get();
  }
  return nullptr;
}

int32_t RadixCache::common_pages(const RadixNode& node, std::span<const int32_t> ids) const {
  const size_t n = std::min(ids.size(), node.ids_.size());
  const auto differ = std::mismatch(ids.begin(), ids.begin() + n, node.ids_.begin()).first;
  return int32_t(differ - ids.begin()) / page_size_;
}

RadixNode& RadixCache::root(std::string_view name_space) {
  auto [it, inserted] = roots_.try_emplace(std::string(name_space));
  if (inserted) {
    it->second = std::make_unique<RadixNode>();
    it->second->id_ = next_id_++;
    it->second->name_space_ = name_space;
  }
  return *it->second;
}

RadixCache::Place RadixCache::find(std::string_view name_space, std::span<const int32_t> ids) const {
  const auto it = roots_.find(std::string(name_space));
  if (it == roots_.end()) return {};
  ids = whole_pages(ids);
  Place place{it->second.get(), 0};
  while (const RadixNode* child = child_of(*place.node, ids)) {
    const int32_t n = common_pages(*child, ids);
    place = {child, place.length + n * page_size_};
    if (n < int32_t(child->pages_.size())) break;
    ids = ids.subspan(child->ids_.size());
  }
  return place;
}

CacheHandle RadixCache::match_prefix(std::string_view name_space, std::span<const int32_t> ids,
                                     std::vector<int32_t>& pages) {
  clock_++;
  ids = whole_pages(ids);
  RadixNode* node = &root(name_space);
  CacheHandle handle;
  while (RadixNode* child = child_of(*node, ids)) {
    const int32_t n = common_pages(*child, ids);
    node = n < int32_t(child->pages_.size()) ? &split(*child, n) : child;
    touch(*node);
    pages.insert(pages.end(), node->pages_.begin(), node->pages_.end());
    handle.n_pages_ += n;
    ids = ids.subspan(node->ids_.size());
  }
  handle.cache_ = this;
  handle.node_ = node;
  lock(*node);
  return handle;
}

void RadixCache::insert_unfinished(CacheHandle& handle, std::span<const int32_t> ids, KvLease& tail) {
  CHECK(handle.cache_ == this);
  ids = whole_pages(ids);
  const int32_t n = int32_t(ids.size()) / page_size_ - handle.n_pages_;
  if (n <= 0) return;
  ids = ids.subspan(size_t(handle.n_pages_) * page_size_);
  if (child_of(*handle.node_, ids)) return;
  clock_++;
  for (RadixNode* node = handle.node_; node->parent_; node = node->parent_) touch(*node);
  RadixNode& leaf = add_leaf(*handle.node_, ids, tail.take_front(n));
  move_lock(handle, leaf, handle.n_pages_ + n);
}

void RadixCache::insert_finished(CacheHandle& handle, std::span<const int32_t> ids, KvLease& tail) {
  CHECK(handle.cache_ == this);
  ids = whole_pages(ids);
  if (int32_t(ids.size()) / page_size_ <= handle.n_pages_) return;
  ids = ids.subspan(size_t(handle.n_pages_) * page_size_);
  clock_++;
  for (RadixNode* node = handle.node_; node->parent_; node = node->parent_) touch(*node);
  RadixNode* node = handle.node_;
  int32_t equal = 0;
  while (RadixNode* child = child_of(*node, ids)) {
    const int32_t n = common_pages(*child, ids);
    equal += n;
    ids = ids.subspan(size_t(n) * page_size_);
    // Behind a cut there is nothing left to compare: either ids ends here or it goes on differently.
    node = n < int32_t(child->pages_.size()) && !ids.empty() ? &split(*child, n) : child;
    touch(*node);
  }
  if (ids.empty()) return;
  const int32_t n_new = int32_t(ids.size()) / page_size_;
  KvLease duplicates = tail.take_front(equal);
  RadixNode& leaf = add_leaf(*node, ids, tail.take_front(n_new));
  duplicates.append(std::move(tail));
  tail = std::move(duplicates);
  move_lock(handle, leaf, handle.n_pages_ + equal + n_new);
}

RadixNode& RadixCache::split(RadixNode& node, int32_t n) {
  RadixNode& parent = *node.parent_;
  std::unique_ptr<RadixNode> lower = detach(node);
  auto upper = std::make_unique<RadixNode>();
  const size_t cut = size_t(n) * page_size_;
  upper->id_ = next_id_++;
  upper->ids_.assign(lower->ids_.begin(), lower->ids_.begin() + cut);
  upper->pages_.assign(lower->pages_.begin(), lower->pages_.begin() + n);
  upper->lock_ref_ = lower->lock_ref_;
  upper->last_access_ = lower->last_access_;
  lower->ids_.erase(lower->ids_.begin(), lower->ids_.begin() + cut);
  lower->pages_.erase(lower->pages_.begin(), lower->pages_.begin() + n);
  RadixNode& result = *upper;
  attach(result, std::move(lower));
  attach(parent, std::move(upper));
  return result;
}

RadixNode& RadixCache::add_leaf(RadixNode& parent, std::span<const int32_t> ids, KvLease&& pages) {
  auto leaf = std::make_unique<RadixNode>();
  leaf->id_ = next_id_++;
  leaf->ids_.assign(ids.begin(), ids.end());
  leaf->pages_ = allocator_.give_to_tree(std::move(pages));
  CHECK_EQ(leaf->pages_.size() * page_size_, leaf->ids_.size());
  leaf->last_access_ = clock_;
  version_++;
  evictable_pages_ += int32_t(leaf->pages_.size());
  RadixNode& result = *leaf;
  attach(parent, std::move(leaf));
  refresh_leaf(result);
  return result;
}

void RadixCache::attach(RadixNode& parent, std::unique_ptr<RadixNode> child) {
  child->parent_ = &parent;
  const uint64_t hash = page_hash(std::span(child->ids_).first(page_size_));
  parent.children_.emplace(hash, std::move(child));
  nodes_++;
  refresh_leaf(parent);
}

std::unique_ptr<RadixNode> RadixCache::detach(RadixNode& node) {
  auto& children = node.parent_->children_;
  auto [begin, end] = children.equal_range(page_hash(std::span(node.ids_).first(page_size_)));
  const auto it = std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == &node; });
  CHECK(it != end);
  std::unique_ptr<RadixNode> owned = std::move(it->second);
  children.erase(it);
  nodes_--;
  return owned;
}

void RadixCache::touch(RadixNode& node) {
  if (node.evictable_leaf_) leaves_.erase(&node);
  node.last_access_ = clock_;
  if (node.evictable_leaf_) leaves_.insert(&node);
}

void RadixCache::refresh_leaf(RadixNode& node) {
  const bool evictable = node.parent_ && node.lock_ref_ == 0 && node.children_.empty();
  if (evictable == node.evictable_leaf_) return;
  node.evictable_leaf_ = evictable;
  if (evictable) {
    leaves_.insert(&node);
  } else {
    leaves_.erase(&node);
  }
}

void RadixCache::lock(RadixNode& node) {
  for (RadixNode* n = &node; n; n = n->parent_) {
    if (n->lock_ref_++ == 0) {
      evictable_pages_ -= int32_t(n->pages_.size());
      refresh_leaf(*n);
    }
  }
}

void RadixCache::unlock(RadixNode& node) {
  for (RadixNode* n = &node; n;) {
    CHECK_GT(n->lock_ref_, 0);
    RadixNode* parent = n->parent_;
    if (--n->lock_ref_ == 0) {
      evictable_pages_ += int32_t(n->pages_.size());
      refresh_leaf(*n);
      if (!parent) drop_if_empty(*n);
    }
    n = parent;
  }
}

void RadixCache::move_lock(CacheHandle& handle, RadixNode& to, int32_t n_pages) {
  lock(to);
  unlock(*handle.node_);
  handle.node_ = &to;
  handle.n_pages_ = n_pages;
}

void RadixCache::drop_if_empty(RadixNode& root) {
  if (root.lock_ref_ == 0 && root.children_.empty()) roots_.erase(std::string(root.name_space_));
}

int32_t RadixCache::evict(int32_t n_pages) {
  int32_t freed = 0;
  while (freed < n_pages && !leaves_.empty()) {
    RadixNode& leaf = **leaves_.begin();
    const int32_t n = std::min(n_pages - freed, int32_t(leaf.pages_.size()));
    const size_t keep = leaf.pages_.size() - n;
    allocator_.free_tree_pages(std::span(leaf.pages_).subspan(keep));
    evictable_pages_ -= n;
    freed += n;
    version_++;
    if (keep > 0) {
      leaf.pages_.resize(keep);
      leaf.ids_.resize(keep * page_size_);
      continue;
    }
    leaves_.erase(&leaf);
    RadixNode& parent = *leaf.parent_;
    detach(leaf);
    refresh_leaf(parent);
    if (!parent.parent_) drop_if_empty(parent);
  }
  return freed;
}

int32_t RadixCache::flush() {
  CHECK_EQ(handles(), 0);
  return evict(total_pages());
}

int64_t RadixCache::handles() const {
  int64_t n = 0;
  for (const auto& [name, root] : roots_) n += root->lock_ref_;
  return n;
}

std::string RadixCache::check_integrity() const {
  int32_t unlocked = 0, nodes = 0;
  size_t leaves = 0;
  for (const auto& [name, root] : roots_) {
    if (std::string problem = check_node(*root, unlocked, leaves, nodes); !problem.empty()) return problem;
  }
  if (nodes != nodes_) return fmt::format("{} nodes, counted {}", nodes, nodes_);
  if (unlocked != evictable_pages_) {
    return fmt::format("{} pages are without lock, counted {}", unlocked, evictable_pages_);
  }
  if (leaves != leaves_.size()) return fmt::format("{} evictable leaves, listed {}", leaves, leaves_.size());
  return {};
}

std::string RadixCache::check_node(const RadixNode& node, int32_t& unlocked, size_t& leaves,
                                   int32_t& nodes) const {
  if (node.ids_.size() != node.pages_.size() * page_size_ || node.pages_.empty() != !node.parent_) {
    return fmt::format("node {} has {} ids in {} pages", node.id_, node.ids_.size(), node.pages_.size());
  }
  for (int32_t page : node.pages_) {
    if (allocator_.state(page) != PageState::kTree) {
      return fmt::format("page {} of the tree is {}", page, page_state_name(allocator_.state(page)));
    }
  }
  int64_t child_locks = 0;
  for (const auto& [hash, child] : node.children_) {
    child_locks += child->lock_ref_;
    if (child->parent_ != &node) return fmt::format("node {} has a wrong parent", child->id_);
    if (child_of(node, child->ids_) != child.get()) return fmt::format("node {} has a twin", child->id_);
    if (std::string problem = check_node(*child, unlocked, leaves, nodes); !problem.empty()) return problem;
  }
  if (node.lock_ref_ < child_locks) {
    return fmt::format("node {} has {} locks, its children {}", node.id_, node.lock_ref_, child_locks);
  }
  const bool evictable = node.parent_ && node.lock_ref_ == 0 && node.children_.empty();
  if (evictable != node.evictable_leaf_) return fmt::format("node {} is wrongly listed as leaf", node.id_);
  leaves += evictable;
  nodes += node.parent_ != nullptr;
  if (node.lock_ref_ == 0) unlocked += int32_t(node.pages_.size());
  return {};
}

}  // namespace gapless
