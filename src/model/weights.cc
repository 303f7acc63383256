#include "model/weights.h"

#include <algorithm>
#include <atomic>

#include "base/thread.h"

namespace gapless {
namespace {

constexpr size_t kSlackBytes = 4096;         // kernels prefetch past a matrix
constexpr size_t kAlignment = 64;            // of each matrix and vector
constexpr int64_t kPieceElements = 1 << 20;  // what one thread packs at a time

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t matrix_bytes(const PackedMatrix& w) {
  return aligned(packed_bytes(w.layout, w.n, w.k));
}

// Read from disk while earlier ones are packed: page faults alone read a disk at a third of its speed.
constexpr size_t kPiecesAhead = 32;

bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

std::string describe(const GgufTensor& tensor) {
  return fmt::format("{} {}", dtype_info(uint32_t(tensor.dtype))->name, gguf_shape(tensor));
}

int64_t row_bytes(const GgufTensor& tensor) {
  return int64_t(tensor.data.size()) / (tensor.elements() / tensor.dims[0]);
}

}  // namespace

bool Linear::reads_q8() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.w.quantised(); });
}
bool Linear::reads_f32() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& part) { return !part.w.quantised(); });
}
bool Linear::reads_low() const {
  return std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.low_begin != kNoLow; });
}

Result<const GgufTensor*> WeightPlan::find(const std::string& name, std::string_view expected) {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (!tensor)
    return Status::invalid("{}: tensor '{}' is missing (expected {})", file_.name(), name, expected);
  used_.insert(tensor->name);
  return tensor;
}

Result<const GgufTensor*> WeightPlan::find_matrix(const std::string& name, int32_t n, int32_t k) {
  const std::string expected = fmt::format("a matrix [{}, {}]", k, n);
  ASSIGN_OR_RETURN(const GgufTensor* tensor, find(name, expected));
  if (tensor->n_dims != 2 || tensor->dims[0] != k || tensor->dims[1] != n) {
    return Status::invalid("{}: tensor '{}' is {}, expected {}", file_.name(), name, describe(*tensor),
                           expected);
  }
  return tensor;
}

Result<const GgufTensor*> WeightPlan::find_vector(const std::string& name, int32_t n) {
  const std::string expected = fmt::format("F32, F16 or BF16 [{}]", n);
  ASSIGN_OR_RETURN(const GgufTensor* tensor, find(name, expected));
  if (tensor->n_dims != 1 || tensor->dims[0] != n || !is_float(tensor->dtype)) {
    return Status::invalid("{}: tensor '{}' is {}, expected {}", file_.name(), name, describe(*tensor),
                           expected);
  }
  return tensor;
}

std::string matmul_label(std::span<const std::string> tensors, int32_t n, int32_t k, DType type) {
  std::string names;
  for (std::string_view name : tensors) {
    if (name.starts_with("blk.")) name.remove_prefix(std::min(name.size(), name.find('.', 4) + 1));
    if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
    names += (names.empty() ? "" : "+") + std::string(name);
  }
  return fmt::format("{} {}x{} {}", names, n, k, dtype_info(uint32_t(type))->name);
}

Status WeightPlan::matrix(PackedMatrix& out, const std::string& name, int32_t n, int32_t k) {
  ASSIGN_OR_RETURN(const GgufTensor* tensor, find_matrix(name, n, k));
  out = {packed_layout_for(tensor->dtype), n, k, nullptr};
  matrices_.push_back(&out);
  copies_.push_back({.tensor = tensor, .matrix = &out});
  return {};
}

Status WeightPlan::linear(Linear& out, std::span<const TensorRows> tensors, int32_t k) {
  out.parts.reserve(tensors.size());  // parts keep their addresses
  std::vector<std::string> of_part;
  for (const TensorRows& rows : tensors) {
    ASSIGN_OR_RETURN(const GgufTensor* tensor, find_matrix(rows.name, rows.n, k));
    const PackedLayout layout = packed_layout_for(tensor->dtype);
    Linear::Part* last = out.parts.empty() ? nullptr : &out.parts.back();
    if (!last || last->w.layout != layout || last->w.n % 16 != 0) {
      out.parts.push_back({.w = {layout, 0, k, nullptr}, .column = out.width});
      last = &out.parts.back();
      matrices_.push_back(&last->w);
      of_part.clear();
    }
    copies_.push_back({.tensor = tensor, .matrix = &last->w, .row_begin = last->w.n});
    out.columns.push_back(out.width);
    if (rows.precise && last->w.quantised()) last->low_begin = std::min(last->low_begin, last->w.n);
    last->w.n += rows.n;
    of_part.push_back(rows.name);
    last->label = matmul_label(of_part, last->w.n, k, tensor->dtype);
    out.width = last->column + last->w.padded_n();
  }
  return {};
}

Status WeightPlan::vector(const float*& out, const std::string& name, int32_t n) {
  ASSIGN_OR_RETURN(const GgufTensor* tensor, find_vector(name, n));
  copies_.push_back({.tensor = tensor, .vector = &out});
  return {};
}

Result<std::vector<float>> WeightPlan::read_vector(const std::string& name, int32_t n) {
  ASSIGN_OR_RETURN(const GgufTensor* tensor, find_vector(name, n));
  std::vector<float> values(static_cast<size_t>(n));
  dequantise(tensor->dtype, tensor->data.data(), n, values.data());
  return values;
}

Status WeightPlan::check_all_used() const {
  constexpr size_t kShown = 3;
  std::string names;
  size_t unused = 0;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (used_.contains(tensor.name)) continue;
    if (unused++ < kShown) names += (names.empty() ? "" : ", ") + printable(tensor.name);
  }
  if (unused == 0) return {};
  return Status::invalid("{}: {} tensors have no place in this architecture: {}{}", file_.name(), unused,
                         names, unused > kShown ? ", ..." : "");
}

size_t WeightPlan::bytes_needed() const {
  size_t bytes = kSlackBytes;
  for (const PackedMatrix* w : matrices_) bytes += matrix_bytes(*w);
  for (const Copy& copy : copies_)
    bytes += copy.vector ? aligned(size_t(copy.tensor->elements()) * sizeof(float)) : 0;
  return bytes;
}

void WeightPlan::place(std::byte* memory) {
  for (PackedMatrix* w : matrices_) {
    w->data = memory;
    memory += matrix_bytes(*w);
  }
  for (const Copy& copy : copies_) {
    if (!copy.vector) continue;
    *copy.vector = reinterpret_cast<const float*>(memory);
    memory += aligned(size_t(copy.tensor->elements()) * sizeof(float));
  }
}

std::span<const std::byte> WeightPlan::Piece::source() const {
  const int64_t bytes = row_bytes(*copy->tensor);
  return copy->tensor->data.subspan(size_t(first * bytes), size_t(rows * bytes));
}

// In the order of the file, so that a disk reads forwards.
std::vector<WeightPlan::Piece> WeightPlan::cut() const {
  std::vector<Piece> pieces;
  for (const Copy& copy : copies_) {
    if (copy.vector) {
      pieces.push_back({&copy, 0, 1});
      continue;
    }
    const auto n = int32_t(copy.tensor->dims[1]);
    const auto step = int32_t(std::max<int64_t>(1, kPieceElements / copy.tensor->dims[0] / 16) * 16);
    for (int32_t first = 0; first < n; first += std::min(step, n - first)) {
      pieces.push_back({&copy, first, std::min(step, n - first)});
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.source().data() < b.source().data(); });
  return pieces;
}

void WeightPlan::pack(const Piece& piece) const {
  const Copy& copy = *piece.copy;
  const GgufTensor& tensor = *copy.tensor;
  const std::span<const std::byte> source = piece.source();
  if (copy.vector) {
    dequantise(tensor.dtype, source.data(), tensor.elements(), const_cast<float*>(*copy.vector));
  } else {
    const PackedMatrix& w = *copy.matrix;
    pack_rows(tensor.dtype, source.data(), piece.rows, w, copy.row_begin + piece.first,
              const_cast<std::byte*>(w.data));
  }
  if (file_.is_mapped()) drop_mapped_pages(source);
}

Result<Buffer> WeightPlan::load(Device& device, int threads) {
  ASSIGN_OR_RETURN(Buffer memory, device.allocate(bytes_needed(), MemoryKind::kWeights));
  place(memory.as<std::byte>());
  const std::vector<Piece> pieces = cut();
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      if (file_.is_mapped() && i + kPiecesAhead < pieces.size()) {
        prefetch_mapped_pages(pieces[i + kPiecesAhead].source());
      }
      pack(pieces[i]);
    }
  };
  {
    std::vector<NamedThread> helpers;
    for (int t = 1; t < threads; ++t) helpers.emplace_back("load", work);
    work();
  }
  // Neighbouring pages that the kernel mapped around a read.
  if (file_.is_mapped()) {
    for (const Copy& copy : copies_) drop_mapped_pages(copy.tensor->data);
  }
  return memory;
}

}  // namespace gapless
