// The grammars that were asked for last, compiled: clients send the same schema with every request.
#pragma once

#include <list>
#include <mutex>

#include "sampling/grammar.h"

namespace gapless {

class GrammarCache : public GrammarBackend {
 public:
  // `backend` must outlive the cache. At most `capacity` grammars are kept, the last used ones.
  GrammarCache(const GrammarBackend& backend, size_t capacity) : backend_(backend), capacity_(capacity) {}

  // Compiles outside the lock: two threads that want the same new grammar at once both compile it. Errors are
  // not kept.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) const override;

 private:
  struct Entry {
    GrammarSpec spec;
    std::shared_ptr<const Grammar> grammar;
  };
  std::shared_ptr<const Grammar> find(const GrammarSpec& spec) const;

  const GrammarBackend& backend_;
  const size_t capacity_;
  mutable std::mutex mutex_;
  mutable std::list<Entry> entries_;  // last used first; few, so that looking at all costs nothing
};

}  // namespace gapless
