#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace gapless {

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

namespace {

Result<MappedFile> system_error(const std::string& path, const char* what) {
  return Status::invalid("{}: cannot {}: {}", path, what, std::strerror(errno));
}

Status check_regular(const std::string& path, const struct stat& info) {
  if (S_ISDIR(info.st_mode))
    return Status::invalid("{}: is a directory; give the path of a .gguf file", path);
  if (!S_ISREG(info.st_mode)) return Status::invalid("{}: is not a regular file", path);
  if (info.st_size == 0) return Status::invalid("{}: file is empty (0 bytes)", path);
  return {};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not hang before it is refused.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(path, "open");
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    ::close(fd);
    return system_error(path, "stat");
  }
  if (Status status = check_regular(path, info); !status.is_ok()) {
    ::close(fd);
    return status;
  }
  void* data = mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  errno = error;
  if (data == MAP_FAILED) return system_error(path, "map");
  MappedFile file;
  file.bytes_ = {static_cast<const std::byte*>(data), size_t(info.st_size)};
  return file;
}

void prefetch_mapped_pages(std::span<const std::byte> bytes) {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = uintptr_t(bytes.data()) & ~(page - 1);
  const uintptr_t end = uintptr_t(bytes.data() + bytes.size());
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void drop_mapped_pages(std::span<const std::byte> bytes) {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (uintptr_t(bytes.data()) + page - 1) & ~(page - 1);
  const uintptr_t end = uintptr_t(bytes.data() + bytes.size()) & ~(page - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace gapless
