// Builds GGUF files in memory: the simulated model, and the small models of tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf.h"

namespace gapless {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  void add_u32(std::string_view key, uint32_t value);
  void add_i32(std::string_view key, int32_t value);
  void add_u64(std::string_view key, uint64_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_i32s(std::string_view key, std::span<const int32_t> values);
  // A value's bytes as they go into the file, right or wrong.
  void add_raw(std::string_view key, uint32_t type, std::span<const std::byte> value);

  // dims[0] is the fastest. `data` holds the tensor's blocks.
  void add_tensor(std::string_view name, std::span<const int64_t> dims, DType type,
                  std::vector<std::byte> data);

  // The tensor must be there.
  void remove_tensor(std::string_view name);

  std::vector<std::byte> finish() const;

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;
    DType type;
    std::vector<std::byte> data;
  };
  void put_key(std::string_view key, GgufType type);

  uint32_t version_;
  uint64_t n_keys_ = 0;
  std::vector<std::byte> metadata_;
  std::vector<Tensor> tensors_;
};

Status write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace gapless
