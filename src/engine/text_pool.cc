#include "engine/text_pool.h"

#include <fmt/format.h>

namespace gapless {

TextPool::TextPool(int threads, size_t max_queued) : queue_(max_queued) {
  for (int i = 0; i < threads; i++)
    threads_.emplace_back(fmt::format("text-{}", i), [this] {
      while (auto job = queue_.pop()) (*job)();
    });
}

void TextPool::close() {
  queue_.close();
  threads_.clear();
}

}  // namespace gapless
