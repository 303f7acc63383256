#include <cmath>
#include <cstring>
#include <limits>

#include "model/gguf.h"

#include "model/gguf_parser.h"

namespace gapless {
namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// An integer of any of the file's types, kept exactly.
struct Integer {
  bool negative;
  uint64_t magnitude;
};

template <class T>
Integer signed_integer(const std::byte* p) {
  const T v = load<T>(p);
  return {v < 0, v < 0 ? ~uint64_t(int64_t(v)) + 1 : uint64_t(v)};
}

bool read_integer(GgufType type, const std::byte* p, Integer& out) {
  switch (type) {
    case GgufType::kU8:
      out = {false, load<uint8_t>(p)};
      return true;
    case GgufType::kU16:
      out = {false, load<uint16_t>(p)};
      return true;
    case GgufType::kU32:
      out = {false, load<uint32_t>(p)};
      return true;
    case GgufType::kU64:
      out = {false, load<uint64_t>(p)};
      return true;
    case GgufType::kI8:
      out = signed_integer<int8_t>(p);
      return true;
    case GgufType::kI16:
      out = signed_integer<int16_t>(p);
      return true;
    case GgufType::kI32:
      out = signed_integer<int32_t>(p);
      return true;
    case GgufType::kI64:
      out = signed_integer<int64_t>(p);
      return true;
    default:
      return false;
  }
}

std::string describe(const GgufValue& value) {
  if (value.type != GgufType::kArray) return gguf_type_name(value.type);
  return fmt::format("an array of {} {}", value.count, gguf_type_name(value.element));
}

Status check_numbers(const std::string& file, std::string_view key, uint64_t count) {
  if (count <= GgufLimits::kMaxNumbers) return {};
  return Status::invalid("{}: metadata key {} has {} elements, limit {}", file, printable(key), count,
                         GgufLimits::kMaxNumbers);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

const char* gguf_type_name(GgufType type) {
  static constexpr const char* kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                           "int32",  "float32", "bool",   "string", "array",
                                           "uint64", "int64",   "float64"};
  return uint32_t(type) < std::size(kNames) ? kNames[uint32_t(type)] : "unknown";
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

Result<const GgufValue*> GgufMetadata::require(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return Status::invalid("{}: metadata key {} is missing", file_name_, printable(key));
  return value;
}

Result<const GgufValue*> GgufMetadata::require_array(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require(key));
  if (value->type != GgufType::kArray) return wrong_type(key, *value, "an array");
  return value;
}

Status GgufMetadata::wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const {
  return Status::invalid("{}: metadata key {} is {}, expected {}", file_name_, printable(key),
                         describe(value), wanted);
}

Result<uint64_t> GgufMetadata::get_u64(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require(key));
  Integer integer;
  if (!read_integer(value->type, value->bytes.data(), integer)) return wrong_type(key, *value, "an integer");
  if (integer.negative) {
    return Status::invalid("{}: metadata key {} is -{}, expected 0 or more", file_name_, printable(key),
                           integer.magnitude);
  }
  return integer.magnitude;
}

Result<uint32_t> GgufMetadata::get_u32(std::string_view key) const {
  ASSIGN_OR_RETURN(const uint64_t value, get_u64(key));
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  if (value > kMax)
    return Status::invalid("{}: metadata key {} is {}, limit {}", file_name_, printable(key), value, kMax);
  return uint32_t(value);
}

Result<float> GgufMetadata::get_f32(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require(key));
  float number = 0;
  if (value->type == GgufType::kF32) {
    number = load<float>(value->bytes.data());
  } else if (value->type == GgufType::kF64) {
    number = float(load<double>(value->bytes.data()));
  } else {
    return wrong_type(key, *value, "float32");
  }
  if (!std::isfinite(number)) {
    return Status::invalid("{}: metadata key {} is {}, expected a finite number", file_name_, printable(key),
                           number);
  }
  return number;
}

Result<bool> GgufMetadata::get_bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require(key));
  if (value->type != GgufType::kBool) return wrong_type(key, *value, "bool");
  return load<uint8_t>(value->bytes.data()) != 0;
}

Result<std::string_view> GgufMetadata::get_string(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require(key));
  if (value->type != GgufType::kString) return wrong_type(key, *value, "a string");
  return as_text(value->bytes);
}

Result<uint32_t> GgufMetadata::get_u32(std::string_view key, uint32_t fallback) const {
  return has(key) ? get_u32(key) : Result<uint32_t>(fallback);
}
Result<float> GgufMetadata::get_f32(std::string_view key, float fallback) const {
  return has(key) ? get_f32(key) : Result<float>(fallback);
}
Result<bool> GgufMetadata::get_bool(std::string_view key, bool fallback) const {
  return has(key) ? get_bool(key) : Result<bool>(fallback);
}
Result<std::string_view> GgufMetadata::get_string(std::string_view key, std::string_view fallback) const {
  return has(key) ? get_string(key) : Result<std::string_view>(fallback);
}

Result<uint64_t> GgufMetadata::array_length(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require_array(key));
  return value->count;
}

Result<std::vector<std::string_view>> GgufMetadata::get_strings(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require_array(key));
  if (value->element != GgufType::kString) return wrong_type(key, *value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);  // the parser has walked these strings: the count is real
  const std::byte* p = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto bytes = load<uint64_t>(p);
    strings.push_back(as_text({p + 8, size_t(bytes)}));
    p += 8 + bytes;
  }
  return strings;
}

Result<std::vector<float>> GgufMetadata::get_f32s(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require_array(key));
  if (value->element != GgufType::kF32) return wrong_type(key, *value, "an array of float32");
  RETURN_IF_ERROR(check_numbers(file_name_, key, value->count));
  std::vector<float> numbers(value->count);
  if (value->count) std::memcpy(numbers.data(), value->bytes.data(), value->count * sizeof(float));
  return numbers;
}

Result<std::vector<int32_t>> GgufMetadata::get_i32s(std::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, require_array(key));
  Integer integer{};
  const size_t stride = gguf_scalar_bytes(value->element)
                            .value_or(0);  // 0 only where the next line refuses, or nothing is read
  std::vector<int32_t> numbers;
  if (value->count && !read_integer(value->element, value->bytes.data(), integer)) {
    return wrong_type(key, *value, "an array of integers");
  }
  RETURN_IF_ERROR(check_numbers(file_name_, key, value->count));
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    read_integer(value->element, value->bytes.data() + i * stride, integer);
    if (integer.magnitude > uint64_t(std::numeric_limits<int32_t>::max())) {
      return Status::invalid("{}: metadata key {}[{}] is {}{}, limit {}", file_name_, printable(key), i,
                             integer.negative ? "-" : "", integer.magnitude,
                             std::numeric_limits<int32_t>::max());
    }
    numbers.push_back(integer.negative ? -int32_t(integer.magnitude) : int32_t(integer.magnitude));
  }
  return numbers;
}

}  // namespace gapless
