#include "model/weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "device/registry.h"
#include "model/testing/quantise.h"

namespace gapless {
namespace {

using testing::Bytes;
using testing::GgufWriter;
using testing::quantise;

// Values that every type stores exactly would prove little: these differ in every element.
std::vector<float> values(int64_t count, float start) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = start + 0.01f * float(i % 997) - 5;
  return x;
}

void add(GgufWriter& writer, const std::string& name, std::vector<int64_t> dims, DType type, float start) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  writer.add_tensor(name, dims, type, quantise(type, values(count, start)));
}

class WeightPlanTest : public ::testing::Test {
 protected:
  // a, b: Q4_1 and Q4_0, one layout; c: Q8_0; d, e: F32 with 20 rows, not a multiple of 16; v, h: vectors.
  WeightPlanTest() {
    GgufWriter writer;
    add(writer, "a", {64, 48}, DType::kQ4_1, 0);
    add(writer, "b", {64, 32}, DType::kQ4_0, 1);
    add(writer, "c", {64, 40}, DType::kQ8_0, 2);
    add(writer, "d", {64, 20}, DType::kF32, 3);
    add(writer, "e", {64, 20}, DType::kF32, 4);
    add(writer, "v", {64}, DType::kF32, 5);
    add(writer, "h", {64}, DType::kBF16, 6);
    bytes_ = writer.finish();
    file_.emplace(GgufFile::parse("w.gguf", bytes_).value());
    device_ = make_device("cpu", {.threads = 1}).value();
  }

  // Row `row` of tensor `name` as the file has it.
  std::vector<float> expected_row(const std::string& name, int64_t row) const {
    const GgufTensor& t = *file_->find_tensor(name);
    std::vector<float> all(size_t(t.elements()));
    dequantise(t.dtype, t.data.data(), t.elements(), all.data());
    return {all.begin() + row * t.dims[0], all.begin() + (row + 1) * t.dims[0]};
  }
  void expect_rows(const PackedMatrix& w, int32_t row_begin, const std::string& name) const {
    for (int32_t row = 0; row < int32_t(file_->find_tensor(name)->dims[1]); ++row) {
      std::vector<float> got(size_t(w.k));
      dequantise_packed_row(w, row_begin + row, got.data());
      ASSERT_EQ(got, expected_row(name, row)) << name << " row " << row;
    }
  }

  Bytes bytes_;
  std::optional<GgufFile> file_;
  std::unique_ptr<Device> device_;
};

TEST_F(WeightPlanTest, tensors_of_one_layout_become_one_matrix) {
  WeightPlan plan(*file_);
  Linear linear;
  const WeightPlan::TensorRows tensors[] = {{"a", 48}, {"b", 32, true}, {"c", 40}};
  ASSERT_TRUE(plan.linear(linear, tensors, 64).is_ok());
  ASSERT_EQ(linear.parts.size(), 2u);
  EXPECT_EQ(linear.parts[0].w.layout, PackedLayout::kW4);
  EXPECT_EQ(linear.parts[0].w.n, 80);
  EXPECT_EQ(linear.parts[0].low_begin, 48);
  EXPECT_EQ(linear.parts[1].w.n, 40);
  EXPECT_EQ(linear.parts[1].column, 80);
  EXPECT_EQ(linear.parts[1].low_begin, Linear::kNoLow);
  EXPECT_EQ(linear.columns, (std::vector<int32_t>{0, 48, 80}));
  EXPECT_EQ(linear.width, 80 + 48);
  EXPECT_TRUE(linear.reads_q8() && linear.reads_low() && !linear.reads_f32());
  for (const int threads : {1, 3}) {
    const Buffer memory = plan.load(*device_, threads).value();
    expect_rows(linear.parts[0].w, 0, "a");
    expect_rows(linear.parts[0].w, 48, "b");
    expect_rows(linear.parts[1].w, 0, "c");
  }
}

TEST_F(WeightPlanTest, rows_that_do_not_fill_a_group_keep_their_own_columns) {
  WeightPlan plan(*file_);
  Linear linear;
  const WeightPlan::TensorRows tensors[] = {{"d", 20}, {"e", 20, true}};
  ASSERT_TRUE(plan.linear(linear, tensors, 64).is_ok());
  ASSERT_EQ(linear.parts.size(), 2u);
  EXPECT_EQ(linear.columns, (std::vector<int32_t>{0, 32}));
  EXPECT_EQ(linear.width, 64);
  EXPECT_TRUE(linear.reads_f32() && !linear.reads_q8() && !linear.reads_low());
  const Buffer memory = plan.load(*device_, 2).value();
  expect_rows(linear.parts[0].w, 0, "d");
  expect_rows(linear.parts[1].w, 0, "e");
}

TEST_F(WeightPlanTest, vectors_become_float32) {
  WeightPlan plan(*file_);
  const float *v = nullptr, *h = nullptr;
  ASSERT_TRUE(plan.vector(v, "v", 64).is_ok());
  ASSERT_TRUE(plan.vector(h, "h", 64).is_ok());
  const Buffer memory = plan.load(*device_, 1).value();
  EXPECT_EQ(std::vector<float>(v, v + 64), expected_row("v", 0));
  EXPECT_EQ(std::vector<float>(h, h + 64), expected_row("h", 0));
  EXPECT_EQ(plan.read_vector("h", 64).value(), expected_row("h", 0));
}

TEST_F(WeightPlanTest, errors_say_expected_and_actual) {
  WeightPlan plan(*file_);
  PackedMatrix w;
  const float* v = nullptr;
  EXPECT_EQ(plan.matrix(w, "x", 2, 3).message(), "w.gguf: tensor 'x' is missing (expected a matrix [3, 2])");
  EXPECT_EQ(plan.matrix(w, "a", 64, 48).message(),
            "w.gguf: tensor 'a' is Q4_1 [64, 48], expected a matrix [48, 64]");
  EXPECT_EQ(plan.matrix(w, "v", 1, 64).message(),
            "w.gguf: tensor 'v' is F32 [64], expected a matrix [64, 1]");
  EXPECT_EQ(plan.vector(v, "a", 64).message(),
            "w.gguf: tensor 'a' is Q4_1 [64, 48], expected F32, F16 or BF16 [64]");
  EXPECT_EQ(plan.check_all_used().message(),
            "w.gguf: 5 tensors have no place in this architecture: 'b', 'c', 'd', ...");
}

TEST_F(WeightPlanTest, a_mapped_file_loads_the_same) {
  const auto path = std::filesystem::path(::testing::TempDir()) / fmt::format("weights_{}.gguf", getpid());
  ASSERT_TRUE(testing::write_file(path, bytes_).is_ok());
  {
    const GgufFile mapped = GgufFile::open(path).value();
    EXPECT_TRUE(mapped.is_mapped());
    WeightPlan plan(mapped);
    PackedMatrix w;
    ASSERT_TRUE(plan.matrix(w, "c", 40, 64).is_ok());
    const Buffer first = plan.load(*device_, 1).value();
    expect_rows(w, 0, "c");
    const Buffer second =
        plan.load(*device_, 1).value();  // its pages were dropped: they come back from the file
    expect_rows(w, 0, "c");
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace gapless
