#include "model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace gapless {

std::optional<uint32_t> gguf_scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return std::nullopt;
  }
}

namespace {

bool begins_with(std::span<const std::byte> bytes, std::string_view prefix) {
  return bytes.size() >= prefix.size() && std::memcmp(bytes.data(), prefix.data(), prefix.size()) == 0;
}

// What a file that is not GGUF is likely to be.
std::string_view guess_format(std::span<const std::byte> bytes) {
  if (bytes.size() > 9 && bytes[8] == std::byte{'{'} && bytes[6] == std::byte{0} &&
      bytes[7] == std::byte{0}) {
    return "this is a safetensors file: convert it to GGUF, or download the model's GGUF version";
  }
  if (begins_with(bytes, "version https://git-lfs"))
    return "this is a Git LFS pointer, not the model: fetch it with git lfs pull";
  if (begins_with(bytes, "<")) return "this is a web page: the download failed, check the address";
  if (begins_with(bytes, "PK\x03\x04")) return "this is a zip or PyTorch file: convert it to GGUF";
  if (begins_with(bytes, "tjgg") || begins_with(bytes, "lmgg") || begins_with(bytes, "fmgg") ||
      begins_with(bytes, "algg")) {
    return "this is a GGML file from before GGUF: download the model's GGUF version";
  }
  return "this is not a GGUF file";
}

// ggml types that files use and this program does not read, by number.
std::string_view unsupported_type_name(uint32_t type) {
  switch (type) {
    case 9:
      return "Q8_1";
    case 10:
      return "Q2_K";
    case 11:
      return "Q3_K";
    case 15:
      return "Q8_K";
    case 16:
      return "IQ2_XXS";
    case 17:
      return "IQ2_XS";
    case 18:
      return "IQ3_XXS";
    case 19:
      return "IQ1_S";
    case 20:
      return "IQ4_NL";
    case 21:
      return "IQ3_S";
    case 22:
      return "IQ2_S";
    case 23:
      return "IQ4_XS";
    case 29:
      return "IQ1_M";
    case 39:
      return "MXFP4";
    default:
      return "unknown";
  }
}

constexpr std::string_view kSupportedTypes = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";

}  // namespace

GgufParser::GgufParser(std::string name, std::span<const std::byte> bytes) : bytes_(bytes) {
  file_.bytes_ = bytes;
  file_.metadata_.file_name_ = std::move(name);
}

template <class... Args>
Status GgufParser::error(fmt::format_string<Args...> format, Args&&... args) const {
  return Status::invalid("{}: {}", file_.name(), fmt::format(format, std::forward<Args>(args)...));
}

Status GgufParser::truncated(uint64_t need, std::string_view what) const {
  return error("file is truncated: need {} bytes, have {} ({})", need, bytes_.size(), what);
}

// A length that no file has is damage, not a file cut short: saying how much is missing would mislead.
Status GgufParser::too_long(uint64_t bytes, std::string_view what) const {
  constexpr uint64_t kPlausible = uint64_t(1) << 48;
  if (bytes > kPlausible)
    return error("{}: length {} is impossible, the file has {} bytes", what, bytes, bytes_.size());
  return truncated(at_ + bytes, what);
}

template <class T>
Status GgufParser::read(T& out, std::string_view what) {
  if (left() < sizeof(T)) return truncated(at_ + sizeof(T), what);
  std::memcpy(&out, bytes_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return {};
}

Status GgufParser::read_bytes(uint64_t count, std::span<const std::byte>& out, std::string_view what) {
  if (left() < count) return too_long(count, what);
  out = bytes_.subspan(at_, count);
  at_ += count;
  return {};
}

Status GgufParser::read_string(std::string_view& out, uint64_t limit, std::string_view what) {
  uint64_t length = 0;
  RETURN_IF_ERROR(read(length, what));
  if (length > limit) return error("{}: string of {} bytes, limit {}", what, length, limit);
  std::span<const std::byte> bytes;
  RETURN_IF_ERROR(read_bytes(length, bytes, what));
  out = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return {};
}

Result<GgufFile> GgufParser::parse() {
  uint64_t n_tensors = 0, n_keys = 0;
  RETURN_IF_ERROR(read_prologue());
  // A key takes at least 8 + 1 + 4 + 1 bytes, a tensor 8 + 1 + 4 + 8 + 4 + 8.
  RETURN_IF_ERROR(read_count(n_tensors, GgufLimits::kMaxTensors, 33, "tensor count"));
  RETURN_IF_ERROR(read_count(n_keys, GgufLimits::kMaxKeys, 14, "metadata key count"));
  RETURN_IF_ERROR(read_metadata(n_keys));
  RETURN_IF_ERROR(read_alignment());
  RETURN_IF_ERROR(read_tensors(n_tensors));
  RETURN_IF_ERROR(place_tensors());
  return std::move(file_);
}

Status GgufParser::read_prologue() {
  if (!begins_with(bytes_, "GGUF")) {
    if (bytes_.empty()) return error("file is empty (0 bytes)");
    return error("{}", guess_format(bytes_));
  }
  at_ = 4;
  uint32_t version = 0;
  RETURN_IF_ERROR(read(version, "version"));
  if (version == 0x02000000 || version == 0x03000000) {
    return error("this is a big-endian GGUF file: convert it to little-endian");
  }
  if (version != 2 && version != 3) return error("GGUF version {}, supported are 2 and 3", version);
  file_.version_ = version;
  return {};
}

Status GgufParser::read_count(uint64_t& out, uint64_t limit, uint64_t min_entry_bytes,
                              std::string_view what) {
  RETURN_IF_ERROR(read(out, what));
  if (out > limit) return error("{} is {}, limit {}", what, out, limit);
  if (out > left() / min_entry_bytes) return truncated(at_ + out * min_entry_bytes, what);
  return {};
}

Status GgufParser::read_metadata(uint64_t count) {
  file_.metadata_.keys_.reserve(count);
  file_.metadata_.values_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view key;
    RETURN_IF_ERROR(read_string(key, GgufLimits::kMaxKeyBytes, "metadata key"));
    if (key.empty()) return error("metadata key {} of {} is empty", i, count);
    GgufValue value{};
    RETURN_IF_ERROR(read_value(key, value));
    if (!file_.metadata_.values_.emplace(key, value).second)
      return error("metadata key {} appears twice", printable(key));
    file_.metadata_.keys_.push_back(key);
  }
  return {};
}

Status GgufParser::read_value(std::string_view key, GgufValue& out) {
  const std::string what = fmt::format("metadata key {}", printable(key));
  uint32_t type = 0;
  RETURN_IF_ERROR(read(type, what));
  out.type = GgufType(type);
  if (out.type == GgufType::kArray) return read_array(key, out);
  if (out.type == GgufType::kString) {
    uint64_t length = 0;
    RETURN_IF_ERROR(read(length, what));
    return read_bytes(length, out.bytes, what);
  }
  const auto bytes = gguf_scalar_bytes(GgufType(type));
  if (!bytes) return error("{}: unknown value type {}, known are 0 to 12", what, type);
  return read_bytes(*bytes, out.bytes, what);
}

Status GgufParser::read_array(std::string_view key, GgufValue& out) {
  const std::string what = fmt::format("metadata key {}", printable(key));
  uint32_t element = 0;
  RETURN_IF_ERROR(read(element, what));
  RETURN_IF_ERROR(read(out.count, what));
  out.element = GgufType(element);
  if (out.element == GgufType::kArray) return error("{}: arrays of arrays are not supported", what);
  if (out.element == GgufType::kString) {
    const uint64_t begin = at_;
    RETURN_IF_ERROR(skip_strings(key, out.count));
    out.bytes = bytes_.subspan(begin, at_ - begin);
    return {};
  }
  const auto bytes = gguf_scalar_bytes(GgufType(element));
  if (!bytes) return error("{}: unknown array element type {}, known are 0 to 12", what, element);
  uint64_t total = 0;
  if (__builtin_mul_overflow(out.count, uint64_t(*bytes), &total)) return too_long(out.count, what);
  return read_bytes(total, out.bytes, what);
}

// A vocabulary is up to a million strings: nothing is built per string here.
Status GgufParser::skip_strings(std::string_view key, uint64_t count) {
  if (count > GgufLimits::kMaxStrings - strings_) {
    return error("metadata key {}: array of {} strings, limit {} in a file", printable(key), count,
                 GgufLimits::kMaxStrings);
  }
  strings_ += count;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    if (left() < sizeof length)
      return truncated(at_ + sizeof length,
                       fmt::format("metadata key {}, string {} of {}", printable(key), i, count));
    std::memcpy(&length, bytes_.data() + at_, sizeof length);
    at_ += sizeof length;
    if (length > left())
      return too_long(length, fmt::format("metadata key {}, string {} of {}", printable(key), i, count));
    at_ += length;
  }
  return {};
}

Status GgufParser::read_alignment() {
  constexpr const char* kKey = "general.alignment";
  const GgufValue* value = file_.metadata_.find(kKey);
  if (!value) return {};
  if (value->type != GgufType::kU32) {
    return error("metadata key '{}' is {}, expected uint32", kKey, gguf_type_name(value->type));
  }
  std::memcpy(&alignment_, value->bytes.data(), sizeof alignment_);
  if (!std::has_single_bit(alignment_) || alignment_ < GgufLimits::kMinAlignment ||
      alignment_ > GgufLimits::kMaxAlignment) {
    return error("metadata key '{}' is {}, expected a power of two from {} to {}", kKey, alignment_,
                 uint32_t(GgufLimits::kMinAlignment), uint32_t(GgufLimits::kMaxAlignment));
  }
  return {};
}

Status GgufParser::read_tensors(uint64_t count) {
  file_.tensors_.reserve(count);
  file_.tensor_index_.reserve(count);
  extents_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor{};
    RETURN_IF_ERROR(read_string(tensor.name, GgufLimits::kMaxTensorNameBytes, "tensor name"));
    if (tensor.name.empty()) return error("the name of tensor {} of {} is empty", i, count);
    RETURN_IF_ERROR(read_dims(tensor));
    Extent extent{};
    RETURN_IF_ERROR(read_tensor_type(tensor, extent.bytes));
    RETURN_IF_ERROR(read(extent.offset, "tensor offset"));
    if (extent.offset % alignment_ != 0) {
      return error("tensor {}: offset {} is not a multiple of the alignment {}", printable(tensor.name),
                   extent.offset, alignment_);
    }
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return error("tensor {} appears twice", printable(tensor.name));
    }
    file_.tensors_.push_back(tensor);
    extents_.push_back(extent);
  }
  return {};
}

Status GgufParser::read_dims(GgufTensor& tensor) {
  RETURN_IF_ERROR(read(tensor.n_dims, "tensor dimension count"));
  if (tensor.n_dims == 0 || tensor.n_dims > GgufLimits::kMaxDims) {
    return error("tensor {}: {} dimensions, expected 1 to {}", printable(tensor.name), tensor.n_dims,
                 uint32_t(GgufLimits::kMaxDims));
  }
  std::fill_n(tensor.dims, GgufLimits::kMaxDims, 1);
  int64_t elements = 1;
  for (uint32_t d = 0; d < tensor.n_dims; ++d) {
    RETURN_IF_ERROR(read(tensor.dims[d], "tensor dimension"));
    if (tensor.dims[d] <= 0) {
      return error("tensor {}: dimension {} is {}, expected 1 or more", printable(tensor.name), d,
                   uint64_t(tensor.dims[d]));
    }
    if (__builtin_mul_overflow(elements, tensor.dims[d], &elements)) {
      return error("tensor {}: the product of its dimensions is more than 2^63 (dimension {} is {})",
                   printable(tensor.name), d, tensor.dims[d]);
    }
  }
  return {};
}

Status GgufParser::read_tensor_type(GgufTensor& tensor, uint64_t& bytes) {
  uint32_t type = 0;
  RETURN_IF_ERROR(read(type, "tensor type"));
  const DTypeInfo* info = dtype_info(type);
  if (!info) {
    return error("tensor {}: type {} ({}) is not supported; supported are {}", printable(tensor.name), type,
                 unsupported_type_name(type), kSupportedTypes);
  }
  tensor.dtype = DType(type);
  if (tensor.dims[0] % info->block != 0) {
    return error("tensor {}: dimension 0 is {}, {} needs a multiple of {}", printable(tensor.name),
                 tensor.dims[0], info->name, info->block);
  }
  if (__builtin_mul_overflow(uint64_t(tensor.elements() / info->block), uint64_t(info->bytes), &bytes)) {
    return error("tensor {}: {} {} elements are more than 2^64 bytes", printable(tensor.name),
                 tensor.elements(), info->name);
  }
  return {};
}

Status GgufParser::place_tensors() {
  const uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
  file_.data_offset_ = data;
  uint64_t need = 0;
  std::string_view last;
  for (size_t i = 0; i < extents_.size(); ++i) {
    const GgufTensor& tensor = file_.tensors_[i];
    uint64_t end = 0;
    if (__builtin_add_overflow(data, extents_[i].offset, &end) ||
        __builtin_add_overflow(end, extents_[i].bytes, &end)) {
      return error("tensor {}: offset {} and size {} are more than 2^64 bytes", printable(tensor.name),
                   extents_[i].offset, extents_[i].bytes);
    }
    if (end > need) {
      need = end;
      last = tensor.name;
    }
  }
  if (need > bytes_.size()) return truncated(need, fmt::format("tensor {}", printable(last)));
  for (size_t i = 0; i < extents_.size(); ++i) {
    file_.tensors_[i].data = bytes_.subspan(data + extents_[i].offset, extents_[i].bytes);
  }
  return {};
}

}  // namespace gapless
