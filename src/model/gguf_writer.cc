#include "model/gguf_writer.h"

#include <cstdio>
#include <cstring>

namespace gapless {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kAlignment = 32;  // of files without general.alignment

void put_bytes(Bytes& out, const void* data, size_t bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  out.insert(out.end(), p, p + bytes);
}

template <class T>
void put(Bytes& out, T value) {
  put_bytes(out, &value, sizeof value);
}

void put_string(Bytes& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  put_bytes(out, text.data(), text.size());
}

void pad(Bytes& out) {
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

void GgufWriter::put_key(std::string_view key, GgufType type) {
  put_string(metadata_, key);
  put<uint32_t>(metadata_, uint32_t(type));
  ++n_keys_;
}

void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  put_key(key, GgufType::kU32);
  put(metadata_, value);
}
void GgufWriter::add_i32(std::string_view key, int32_t value) {
  put_key(key, GgufType::kI32);
  put(metadata_, value);
}
void GgufWriter::add_u64(std::string_view key, uint64_t value) {
  put_key(key, GgufType::kU64);
  put(metadata_, value);
}
void GgufWriter::add_f32(std::string_view key, float value) {
  put_key(key, GgufType::kF32);
  put(metadata_, value);
}
void GgufWriter::add_bool(std::string_view key, bool value) {
  put_key(key, GgufType::kBool);
  put<uint8_t>(metadata_, value);
}
void GgufWriter::add_string(std::string_view key, std::string_view value) {
  put_key(key, GgufType::kString);
  put_string(metadata_, value);
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  put_key(key, GgufType::kArray);
  put<uint32_t>(metadata_, uint32_t(GgufType::kString));
  put<uint64_t>(metadata_, values.size());
  for (const std::string& value : values) put_string(metadata_, value);
}

void GgufWriter::add_f32s(std::string_view key, std::span<const float> values) {
  put_key(key, GgufType::kArray);
  put<uint32_t>(metadata_, uint32_t(GgufType::kF32));
  put<uint64_t>(metadata_, values.size());
  put_bytes(metadata_, values.data(), values.size_bytes());
}

void GgufWriter::add_i32s(std::string_view key, std::span<const int32_t> values) {
  put_key(key, GgufType::kArray);
  put<uint32_t>(metadata_, uint32_t(GgufType::kI32));
  put<uint64_t>(metadata_, values.size());
  put_bytes(metadata_, values.data(), values.size_bytes());
}

void GgufWriter::add_raw(std::string_view key, uint32_t type, std::span<const std::byte> value) {
  put_key(key, GgufType(type));
  put_bytes(metadata_, value.data(), value.size());
}

void GgufWriter::add_tensor(std::string_view name, std::span<const int64_t> dims, DType type,
                            std::vector<std::byte> data) {
  tensors_.push_back({std::string(name), {dims.begin(), dims.end()}, type, std::move(data)});
}

void GgufWriter::remove_tensor(std::string_view name) {
  const size_t removed = std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  CHECK_EQ(removed, 1u);
}

std::vector<std::byte> GgufWriter::finish() const {
  Bytes out;
  put_bytes(out, "GGUF", 4);
  put(out, version_);
  put<uint64_t>(out, tensors_.size());
  put(out, n_keys_);
  put_bytes(out, metadata_.data(), metadata_.size());
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put_string(out, tensor.name);
    put<uint32_t>(out, uint32_t(tensor.dims.size()));
    for (const int64_t dim : tensor.dims) put(out, dim);
    put<uint32_t>(out, uint32_t(tensor.type));
    put(out, offset);
    offset += (tensor.data.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (const Tensor& tensor : tensors_) {
    pad(out);
    put_bytes(out, tensor.data.data(), tensor.data.size());
  }
  return out;
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return Status::invalid("{}: cannot create: {}", path, std::strerror(errno));
  const size_t written = bytes.empty() ? 0 : std::fwrite(bytes.data(), 1, bytes.size(), file);
  const int closed = std::fclose(file);
  if (written != bytes.size() || closed != 0)
    return Status::invalid("{}: wrote {} of {} bytes", path, written, bytes.size());
  return {};
}

}  // namespace gapless
