#include "apps/bench_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/random_weights.h"
#include "kernels/roof.h"
#include "kernels/row_stride.h"

namespace gapless {

struct KernelBench::Operands {
  int32_t m, k;
  int64_t ldx, ldy;
  std::vector<float> x, y;
  std::vector<Q8Block> q8;

  explicit Operands(const MatmulShape& s)
      : m(s.m), k(s.k), ldx(row_stride(s.k)), ldy(row_stride(s.n)), x(size_t(m * ldx)), y(size_t(m * ldy)) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(rng);
    if (k % 32 != 0) return;
    q8.resize(size_t(m) * size_t(k / 32));
    const ActivationTiles tiles(m);
    for (int32_t row = 0; row < m; row++) {
      const auto place = tiles.place(row, k / 32);
      for (int32_t b = 0; b < k / 32; b++)
        quantise_block(&x[size_t(row * ldx + b * 32)], q8[place.first + size_t(b) * place.stride]);
    }
  }
  MatmulParams params(const PackedMatrix& w) {
    return {.rows = {&m, 0, m},
            .x_f32 = x.data(),
            .ldx = ldx,
            .x_q8 = q8.data(),
            .w = w,
            .y = y.data(),
            .ldy = ldy,
            .add = false};
  }
};

Status KernelBench::reserve(size_t largest) {
  ASSIGN_OR_RETURN(memory_,
                   timer_.device().allocate(std::max(largest, bytes_beyond_cache()), MemoryKind::kWeights));
  return {};
}

PackedMatrix KernelBench::pack(const MatmulShape& s, int64_t& copies) {
  PackedMatrix w{packed_layout_for(s.type), s.n, s.k, memory_.as<std::byte>()};
  const size_t bytes = packed_bytes(w.layout, w.n, w.k);
  copies = int64_t(memory_.bytes() / bytes);
  CHECK(copies > 0, "{} bytes of weights, reserved are {}", bytes, memory_.bytes());
  std::mt19937 rng(1);
  const auto blocks = random_weights(s.type, int64_t(s.n) * s.k, rng);
  auto* data = memory_.as<std::byte>();
  pack_rows(s.type, blocks.data(), s.n, w, 0, data);
  for (int64_t i = 1; i < copies; i++) std::memcpy(data + size_t(i) * bytes, data, bytes);
  return w;
}

// Outputs of up to 16 rows and 64 columns, spread over the matrix.
double KernelBench::error(const MatmulShape& s, const PackedMatrix& w, const Operands& operands) const {
  std::vector<float> weights(static_cast<size_t>(s.k));
  double wrong = 0, all = 0;
  const int32_t rows = std::min(s.m, 16), columns = std::min(s.n, 64);
  for (int32_t c = 0; c < columns; c++) {
    const auto column = int32_t(int64_t(c) * s.n / columns);
    dequantise_packed_row(w, column, weights.data());
    for (int32_t r = 0; r < rows; r++) {
      double exact = 0;
      for (int32_t i = 0; i < s.k; i++)
        exact += double(weights[size_t(i)]) * double(operands.x[size_t(r * operands.ldx + i)]);
      const double got = double(operands.y[size_t(r * operands.ldy + column)]);
      wrong += (got - exact) * (got - exact);
      all += exact * exact;
    }
  }
  return std::sqrt(wrong / all);
}

MatmulSpeed KernelBench::measure(const MatmulShape& shape) {
  int64_t copies = 0;
  const PackedMatrix w = pack(shape, copies);
  const auto bytes = int64_t(packed_bytes(w.layout, w.n, w.k));
  Operands operands(shape);
  const double seconds = timer_.best_seconds([&](OpList& ops, int64_t i) {
    PackedMatrix copy = w;
    copy.data += i % copies * bytes;
    table_.matmul(ops, operands.params(copy));
  });
  return {seconds, double(bytes), error(shape, w, operands)};
}

}  // namespace gapless
