// What a person who watches is told about the prefix cache.
#include <algorithm>
#include <tuple>

#include "cache/radix_cache.h"

namespace gapless {

std::vector<SharedPrefix> RadixCache::shared_prefixes(std::span<const CacheHandle* const> held,
                                                      size_t max_nodes, size_t max_prefixes) const {
  std::unordered_map<const RadixNode*, int32_t> depths;  // in tokens, of the nodes that were met
  depths.reserve(max_nodes);
  std::vector<const RadixNode*> way;
  const auto climb = [&](const RadixNode* node) {
    way.clear();
    for (; node->parent_ && !depths.contains(node); node = node->parent_) {
      if (depths.size() + way.size() == max_nodes) return;
      way.push_back(node);
    }
    int32_t depth = node->parent_ ? depths.at(node) : 0;
    for (auto below = way.rbegin(); below != way.rend(); ++below) {
      depth += int32_t((*below)->ids_.size());
      depths.emplace(*below, depth);
    }
  };
  for (const CacheHandle* handle : held.first(std::min(held.size(), max_nodes))) climb(handle->node_);
  size_t leaves = 0;
  for (auto leaf = leaves_.rbegin(); leaf != leaves_.rend() && leaves < max_nodes; ++leaf, leaves++)
    climb(*leaf);

  std::vector<SharedPrefix> shared;
  for (const auto& [node, tokens] : depths) {
    if (node->children_.size() >= 2 || node->lock_ref_ >= 2)
      shared.push_back({tokens, int32_t(node->children_.size()), node->lock_ref_});
  }
  const auto longer = [](const SharedPrefix& a, const SharedPrefix& b) {
    return std::tie(a.tokens, a.users, a.branches) > std::tie(b.tokens, b.users, b.branches);
  };
  const size_t n = std::min(shared.size(), max_prefixes);
  std::partial_sort(shared.begin(), shared.begin() + n, shared.end(), longer);
  shared.resize(n);
  return shared;
}

}  // namespace gapless
