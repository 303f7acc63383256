// GGUF files, versions 2 and 3, little-endian: metadata (typed key-value pairs) and a table of tensors, then
// their data. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// A file is input from strangers: every count, length, offset and type is checked before it is used, nothing
// is allocated by a number that the file only claims, and every error names the file, the key or tensor, the
// value seen and the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "kernels/quant.h"
#include "model/mapped_file.h"

namespace gapless {

// Types of metadata values, numbered as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};
const char* gguf_type_name(GgufType type);

// Limits beyond the file's own size. They keep a crafted file under 100 MB and a second; real files are far
// below.
struct GgufLimits {
  static constexpr uint64_t kMaxKeys = 1 << 16;
  static constexpr uint64_t kMaxTensors = 1 << 16;
  static constexpr uint64_t kMaxKeyBytes = 1 << 16;  // as in the specification
  static constexpr uint64_t kMaxTensorNameBytes =
      255;  // the specification says 64; some converters wrote longer ones
  static constexpr uint64_t kMaxStrings = 1 << 22;  // in all arrays of a file together
  static constexpr uint64_t kMaxNumbers = 1 << 22;  // in an array that is copied by get_f32s or get_i32s
  static constexpr uint32_t kMaxDims = 4;
  static constexpr uint32_t kMinAlignment = 8, kMaxAlignment = 1 << 16;
};

// A value as it lies in the file (not aligned): a scalar's bytes, a string's characters, or the elements of
// an array.
struct GgufValue {
  GgufType type;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 0;                // of an array
  std::span<const std::byte> bytes;
};

// Key-value pairs of a file. Immutable; any thread. Views point into the file's bytes and live as long as
// they do.
//
// get_X(key) fails when the key is missing; get_X(key, fallback) does not, but both fail when the value has
// another type or does not fit. Integers of any width are accepted where they fit, as are f32 and f64 for
// each other: converters differ.
class GgufMetadata {
 public:
  const std::string& file_name() const { return file_name_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  const GgufValue* find(std::string_view key) const;
  std::span<const std::string_view> keys() const { return keys_; }  // in file order

  Result<uint32_t> get_u32(std::string_view key) const;
  Result<uint32_t> get_u32(std::string_view key, uint32_t fallback) const;
  Result<uint64_t> get_u64(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;
  Result<float> get_f32(std::string_view key, float fallback) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key, std::string_view fallback) const;
  // Arrays. Strings are not copied.
  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<float>> get_f32s(std::string_view key) const;
  Result<std::vector<int32_t>> get_i32s(std::string_view key) const;
  Result<uint64_t> array_length(std::string_view key) const;

 private:
  friend class GgufParser;
  Result<const GgufValue*> require(std::string_view key) const;
  Result<const GgufValue*> require_array(std::string_view key) const;
  Status wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const;

  std::string file_name_;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
};

// dims[0] is the fastest: a weight matrix W[n, k] has dims {k, n}. Unused dims are 1.
struct GgufTensor {
  std::string_view name;
  DType dtype;
  uint32_t n_dims;
  int64_t dims[GgufLimits::kMaxDims];
  std::span<const std::byte> data;  // row-major blocks

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

std::string gguf_shape(const GgufTensor& tensor);  // "[576, 1536]"

// A parsed file. Immutable after construction; any thread may read it.
class GgufFile {
 public:
  // Maps the file and checks its header: O(header), tensor data is not touched.
  static Result<GgufFile> open(const std::string& path);
  // The same from memory that outlives the object. `name` stands for the file in errors.
  static Result<GgufFile> parse(std::string name, std::span<const std::byte> bytes);

  const std::string& name() const { return metadata_.file_name(); }
  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return bytes_.size(); }
  uint64_t data_offset() const { return data_offset_; }
  bool is_mapped() const { return !mapping_.bytes().empty(); }
  const GgufMetadata& metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }  // in file order
  const GgufTensor* find_tensor(std::string_view name) const;

 private:
  friend class GgufParser;
  MappedFile mapping_;
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint64_t data_offset_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

// Bytes from a file, safe to print: quoted, cut to 64 bytes, anything but printable ASCII as \xNN.
std::string printable(std::string_view text);

}  // namespace gapless
