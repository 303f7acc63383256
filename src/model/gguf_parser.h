// Reads a GGUF header once, front to back. Used by GgufFile only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/gguf.h"

namespace gapless {

// Bytes of a number or a bool; nullopt for strings, arrays and types that do not exist.
std::optional<uint32_t> gguf_scalar_bytes(GgufType type);

class GgufParser {
 public:
  GgufParser(std::string name, std::span<const std::byte> bytes);
  Result<GgufFile> parse();

 private:
  uint64_t left() const { return bytes_.size() - at_; }
  template <class... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const;
  Status truncated(uint64_t need, std::string_view what) const;
  Status too_long(uint64_t bytes, std::string_view what) const;

  template <class T>
  Status read(T& out, std::string_view what);
  Status read_bytes(uint64_t count, std::span<const std::byte>& out, std::string_view what);
  Status read_string(std::string_view& out, uint64_t limit, std::string_view what);

  Status read_prologue();
  Status read_count(uint64_t& out, uint64_t limit, uint64_t min_entry_bytes, std::string_view what);
  Status read_metadata(uint64_t count);
  Status read_value(std::string_view key, GgufValue& out);
  Status read_array(std::string_view key, GgufValue& out);
  Status skip_strings(std::string_view key, uint64_t count);

  Status read_alignment();
  Status read_tensors(uint64_t count);
  Status read_dims(GgufTensor& tensor);
  Status read_tensor_type(GgufTensor& tensor, uint64_t& bytes);
  Status place_tensors();

  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  uint64_t strings_ = 0;  // in arrays so far
  uint32_t alignment_ = 32;
  // Offset from the start of the data, and size, of each tensor: placed when the header's end is known.
  struct Extent {
    uint64_t offset, bytes;
  };
  std::vector<Extent> extents_;
  GgufFile file_;
};

}  // namespace gapless
