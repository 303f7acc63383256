#include "device/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "device/cpu/cpu_stream.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace gapless {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kCopyChunkBytes =
    256 << 10;  // a few microseconds of copying; below that one worker does it alone

size_t page_rounded(size_t bytes) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// AddressSanitizer does not know mappings: the slack up to the page's end is poisoned by hand, so that an op
// that runs over the end of its buffer is caught.
void poison_slack(void* data, size_t bytes, size_t mapped, bool poison) {
#ifdef __SANITIZE_ADDRESS__
  char* const end = static_cast<char*>(data) + bytes;
  if (poison)
    __asan_poison_memory_region(end, mapped - bytes);
  else
    __asan_unpoison_memory_region(end, mapped - bytes);
#else
  (void)data, (void)bytes, (void)mapped, (void)poison;
#endif
}

void unmap(void* data, size_t bytes) {
  const size_t mapped = page_rounded(bytes);
  poison_slack(data, bytes, mapped, false);
  CHECK_EQ(munmap(data, mapped), 0);
}

// The mapping starts at a multiple of `align` (a multiple of the page size); what was mapped too much is
// given back.
void* map_aligned(size_t mapped, size_t align) {
  if (mapped + align < mapped) return nullptr;
  void* const raw = mmap(nullptr, mapped + align, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t begin = (address + align - 1) / align * align;
  if (begin != address) munmap(raw, begin - address);
  const size_t tail = address + align - begin;
  if (tail != 0) munmap(reinterpret_cast<void*>(begin + mapped), tail);
  return reinterpret_cast<void*>(begin);
}

struct CopyParams {
  char* to;
  const char* from;
  size_t bytes;
};

int32_t copy_chunks(const CopyParams& p) {
  return int32_t((p.bytes + kCopyChunkBytes - 1) / kCopyChunkBytes);
}

void copy_run(const CopyParams& p, int32_t chunk, OpContext&) {
  const size_t begin = size_t(chunk) * kCopyChunkBytes;
  std::memcpy(p.to + begin, p.from + begin, std::min(kCopyChunkBytes, p.bytes - begin));
}

OpWork copy_work(const CopyParams& p) {
  return {.bytes = 2.0 * double(p.bytes)};
}

}  // namespace

CpuDevice::CpuDevice(int threads) : threads_(threads) {
  CHECK_GE(threads, 1);
}

Result<Buffer> CpuDevice::allocate(size_t bytes, MemoryKind kind) {
  CHECK_GT(bytes, size_t{0});
  const size_t mapped = page_rounded(bytes);
  const bool huge = kind == MemoryKind::kWeights && bytes >= kHugePage;
  void* const data = mapped < bytes ? nullptr : map_aligned(mapped, huge ? kHugePage : page_rounded(1));
  if (data == nullptr)
    return Status::internal("cannot allocate {} bytes of cpu memory: {}", bytes,
                            std::strerror(errno != 0 ? errno : ENOMEM));
  // Advice only: a kernel without huge pages refuses it and nothing is lost.
  (void)madvise(data, mapped, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  poison_slack(data, bytes, mapped, true);
  return Buffer(data, bytes, unmap);
}

std::unique_ptr<Stream> CpuDevice::create_stream() {
  return std::make_unique<CpuStream>(threads_);
}

void CpuDevice::push_copy(OpList& ops, void* to, const void* from, size_t bytes) {
  CHECK_LE(bytes, size_t(kMaxOpChunks) * kCopyChunkBytes);
  ops.push<copy_chunks, copy_run, copy_work>(
      "copy", CopyParams{static_cast<char*>(to), static_cast<const char*>(from), bytes});
}

}  // namespace gapless
