// Weights by name, type and shape: a model first says what it needs, then everything is loaded at once into
// one piece of device memory, repacked for the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "kernels/quant.h"
#include "model/gguf.h"

namespace gapless {

// y = W x, where W is one or several tensors with the same input behind one another (q|k|v, gate|up). Tensors
// whose layouts agree are one matrix and need one matmul; the others write to their own columns of the same
// output rows.
struct Linear {
  struct Part {
    PackedMatrix w;
    int32_t column = 0;          // of the output row
    int32_t low_begin = kNoLow;  // outputs of w from here on read ActOut::q8_low too (if w is quantised)
    std::string label = {};      // for profiles: "attn_q+attn_k+attn_v 960x576 Q4_1"
  };
  static constexpr int32_t kNoLow = std::numeric_limits<int32_t>::max();
  std::vector<Part> parts;
  std::vector<int32_t> columns;  // of each tensor
  int32_t width = 0;             // floats that a row of the output needs, padding included

  bool reads_q8() const;   // some part reads int8 activations
  bool reads_f32() const;  // some part reads float32 activations
  bool reads_low() const;  // some part reads what int8 activations round away
};

// The label of a matmul with rows of these tensors of a layer: their names without "blk.N." and ".weight".
std::string matmul_label(std::span<const std::string> tensors, int32_t n, int32_t k, DType type);

class WeightPlan {
 public:
  explicit WeightPlan(const GgufFile& file) : file_(file) {}

  struct TensorRows {
    std::string name;
    int32_t n;
    // Reads activations of 15 bits instead of 8, at twice the arithmetic and no more memory traffic.
    bool precise = false;
  };
  // Each call checks one tensor (or a few) and remembers where to put it. The error says what the file has
  // and what was expected. Outputs are filled in by load() and must not move before it; a Linear may be
  // moved, its parts not changed.
  Status matrix(PackedMatrix& out, const std::string& name, int32_t n, int32_t k);
  Status linear(Linear& out, std::span<const TensorRows> tensors, int32_t k);
  Status vector(const float*& out, const std::string& name, int32_t n);
  // Values that are needed before load(), or to compute others: read here and now.
  Result<std::vector<float>> read_vector(const std::string& name, int32_t n);
  const std::string& file_name() const { return file_.name(); }
  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

  // An error that names the first tensors of the file that nobody asked for: a model that is computed
  // without, say, its biases answers wrongly and says nothing.
  Status check_all_used() const;

  // Allocates and packs, on `threads` threads. Source pages are given back as they are read, so the peak is
  // the packed size.
  Result<Buffer> load(Device& device, int threads);

 private:
  struct Copy {  // rows of a tensor into a matrix, or a vector
    const GgufTensor* tensor;
    PackedMatrix* matrix = nullptr;
    int32_t row_begin = 0;
    const float** vector = nullptr;
  };
  struct Piece {
    const Copy* copy;
    int32_t first, rows;  // of the tensor
    std::span<const std::byte> source() const;
  };
  Result<const GgufTensor*> find(const std::string& name, std::string_view expected);
  Result<const GgufTensor*> find_matrix(const std::string& name, int32_t n, int32_t k);
  Result<const GgufTensor*> find_vector(const std::string& name, int32_t n);
  void place(std::byte* memory);
  size_t bytes_needed() const;
  std::vector<Piece> cut() const;
  void pack(const Piece& piece) const;

  const GgufFile& file_;
  std::vector<PackedMatrix*> matrices_;
  std::vector<Copy> copies_;
  std::unordered_set<std::string_view> used_;
};

}  // namespace gapless
