#include "model/gguf.h"

#include <bit>
#include <cstring>

#include "model/gguf_parser.h"

namespace gapless {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie in the file");

Result<GgufFile> GgufFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::open(path));
  ASSIGN_OR_RETURN(GgufFile file, parse(path, mapping.bytes()));
  file.mapping_ = std::move(mapping);
  return file;
}

Result<GgufFile> GgufFile::parse(std::string name, std::span<const std::byte> bytes) {
  return GgufParser(std::move(name), bytes).parse();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

std::string gguf_shape(const GgufTensor& tensor) {
  std::string shape = "[";
  for (uint32_t i = 0; i < tensor.n_dims; ++i) shape += fmt::format("{}{}", i ? ", " : "", tensor.dims[i]);
  return shape + "]";
}

std::string printable(std::string_view text) {
  constexpr size_t kMaxShown = 64;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out + (text.size() > kMaxShown ? "...'" : "'");
}

}  // namespace gapless
