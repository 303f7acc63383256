// Replaces operator new by one that counts, for programs that test what allocates. Include it in one file of
// the program.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace gapless::testing {
inline thread_local int64_t allocations = 0;  // of this thread, since it began
}

void* operator new(size_t bytes) {
  gapless::testing::allocations++;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
