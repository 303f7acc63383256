#include "model/testing/gguf_mutations.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {
std::atomic<size_t> allocated_bytes{0};
}

// Replaces the program's operator new: tests that link this file measure what a parser allocates.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocated_bytes += bytes;
  return std::malloc(bytes ? bytes : 1);
}
void* operator new(size_t bytes) {
  if (void* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}

namespace gapless::testing {
namespace {

uint64_t awkward_number(size_t file_bytes, std::mt19937_64& random) {
  const uint64_t numbers[] = {0,
                              1,
                              5,
                              8,
                              9,
                              13,
                              255,
                              0xffff,
                              0x10000,
                              0x7fffffff,
                              0x80000000,
                              0xffffffff,
                              uint64_t(1) << 32,
                              uint64_t(1) << 48,
                              uint64_t(1) << 61,
                              uint64_t(1) << 62,
                              uint64_t(1) << 63,
                              ~uint64_t(0),
                              ~uint64_t(0) - 31,
                              file_bytes,
                              file_bytes - 1,
                              file_bytes + 1,
                              file_bytes / 8,
                              random()};
  return numbers[random() % std::size(numbers)];
}

}  // namespace

ChangedBytes overwrite_header(std::span<std::byte> header, std::mt19937_64& random) {
  const size_t at = random() % header.size();
  size_t bytes = 1;
  if (random() % 4 == 0) {
    header[at] ^= std::byte(1 << random() % 8);
  } else {
    const size_t widths[] = {1, 4, 8};
    bytes = std::min(widths[random() % 3], header.size() - at);
    const uint64_t number = awkward_number(header.size(), random);
    std::memcpy(header.data() + at, &number, bytes);
  }
  return {at, at + bytes};
}

void mutate_header(Bytes& file, size_t header_bytes, std::mt19937_64& random) {
  const auto at = ptrdiff_t(random() % header_bytes);
  const auto count = ptrdiff_t(1 + random() % 16);
  switch (random() % 8) {
    case 0:
      file.resize(random() % file.size());
      return;
    case 1:
      file.erase(file.begin() + at, file.begin() + std::min(at + count, ptrdiff_t(file.size())));
      return;
    case 2:
      file.insert(file.begin() + at, size_t(count), std::byte(random()));
      return;
    default:
      for (uint64_t changes = 1 + random() % 3; changes > 0; --changes)
        overwrite_header(std::span(file).first(header_bytes), random);
  }
}

Cost::Cost() : allocated_(allocated_bytes), start_(std::chrono::steady_clock::now()) {}
size_t Cost::allocated() const {
  return allocated_bytes - allocated_;
}
double Cost::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace gapless::testing
