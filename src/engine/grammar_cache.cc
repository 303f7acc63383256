#include "engine/grammar_cache.h"

#include <algorithm>

namespace gapless {

std::shared_ptr<const Grammar> GrammarCache::find(const GrammarSpec& spec) const {
  std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(entries_, spec, &Entry::spec);
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return it->grammar;
}

Result<std::shared_ptr<const Grammar>> GrammarCache::compile(const GrammarSpec& spec) const {
  if (auto known = find(spec)) return known;
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, backend_.compile(spec));
  std::lock_guard lock(mutex_);
  entries_.push_front({spec, grammar});
  if (entries_.size() > capacity_) entries_.pop_back();
  return grammar;
}

}  // namespace gapless
