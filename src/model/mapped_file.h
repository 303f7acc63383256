// A file mapped read-only. Nothing is read until it is touched.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace gapless {

// Move-only; unmapped on destruction. Another program that shortens the file while it is mapped ends this
// process (SIGBUS): replace model files by renaming, never in place.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Errors name the path: missing, no permission, a directory or another thing that is not a regular file,
  // empty.
  static Result<MappedFile> open(const std::string& path);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// Starts to read `bytes` (part of a MappedFile) from disk if they are not in memory; returns without waiting
// for them.
void prefetch_mapped_pages(std::span<const std::byte> bytes);

// Gives the memory of whole pages inside `bytes` (part of a MappedFile) back; a later read loads them again
// from the page cache. Anything else than a file mapping would lose its contents.
void drop_mapped_pages(std::span<const std::byte> bytes);

}  // namespace gapless
