#include "model/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "model/testing/gguf_mutations.h"
#include "model/testing/gguf_writer.h"
#include "model/testing/tiny_model.h"

namespace gapless {
namespace {

using testing::Bytes;
using testing::GgufWriter;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class T>
Bytes bytes_of(T value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One value of every type and two tensors, under 2 KB.
GgufWriter small_writer(uint32_t version = 3) {
  GgufWriter writer(version);
  writer.add_string("general.architecture", "llama");
  writer.add_u32("u32", 4000000000u);
  writer.add_i32("i32", -5);
  writer.add_u64("u64", uint64_t(1) << 40);
  writer.add_f32("f32", 0.5f);
  writer.add_bool("bool", true);
  writer.add_raw("u8", 0, bytes_of<uint8_t>(200));
  writer.add_raw("i8", 1, bytes_of<int8_t>(-100));
  writer.add_raw("u16", 2, bytes_of<uint16_t>(60000));
  writer.add_raw("i16", 3, bytes_of<int16_t>(-30000));
  writer.add_raw("i64", 11, bytes_of<int64_t>(7));
  writer.add_raw("f64", 12, bytes_of<double>(0.25));
  const std::vector<std::string> words{"a", "", "\xff\xfe", "word"};
  writer.add_strings("strings", words);
  const std::vector<float> numbers{1, 2.5f};
  writer.add_f32s("floats", numbers);
  const std::vector<int32_t> ints{3, -4, 5};
  writer.add_i32s("ints", ints);
  const int64_t matrix[] = {32, 3}, vector[] = {5};
  writer.add_tensor("matrix", matrix, DType::kQ8_0, Bytes(3 * 34, std::byte{1}));
  writer.add_tensor("vector", vector, DType::kF32, Bytes(20, std::byte{2}));
  return writer;
}

std::string parse_error(std::span<const std::byte> bytes) {
  const Result<GgufFile> file = GgufFile::parse("bad.gguf", bytes);
  return file.is_ok() ? "" : file.status().message();
}

TEST(Gguf, ReadsEveryTypeInBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    const Bytes bytes = small_writer(version).finish();
    ASSERT_LT(bytes.size(), 2048u);
    const Result<GgufFile> file = GgufFile::parse("small.gguf", bytes);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    EXPECT_EQ(file->version(), version);
    const GgufMetadata& m = file->metadata();
    EXPECT_EQ(*m.get_string("general.architecture"), "llama");
    EXPECT_EQ(*m.get_u32("u32"), 4000000000u);
    EXPECT_EQ(*m.get_u64("u64"), uint64_t(1) << 40);
    EXPECT_EQ(*m.get_u32("u8"), 200u);
    EXPECT_EQ(*m.get_u32("u16"), 60000u);
    EXPECT_EQ(*m.get_u32("i64"), 7u);
    EXPECT_EQ(*m.get_f32("f32"), 0.5f);
    EXPECT_EQ(*m.get_f32("f64"), 0.25f);
    EXPECT_EQ(*m.get_bool("bool"), true);
    EXPECT_EQ(*m.get_strings("strings"), (std::vector<std::string_view>{"a", "", "\xff\xfe", "word"}));
    EXPECT_EQ(*m.get_f32s("floats"), (std::vector<float>{1, 2.5f}));
    EXPECT_EQ(*m.get_i32s("ints"), (std::vector<int32_t>{3, -4, 5}));
    EXPECT_EQ(*m.array_length("strings"), 4u);
    EXPECT_EQ(m.keys().size(), 15u);
  }
}

TEST(Gguf, ReadsTensors) {
  const Bytes bytes = small_writer().finish();
  const Result<GgufFile> file = GgufFile::parse("small.gguf", bytes);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor* matrix = file->find_tensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->dtype, DType::kQ8_0);
  EXPECT_EQ(gguf_shape(*matrix), "[32, 3]");
  EXPECT_EQ(matrix->elements(), 96);
  ASSERT_EQ(matrix->data.size(), 102u);
  EXPECT_EQ(matrix->data[101], std::byte{1});
  const GgufTensor* vector = file->find_tensor("vector");
  ASSERT_NE(vector, nullptr);
  ASSERT_EQ(vector->data.size(), 20u);
  EXPECT_EQ(vector->data[0], std::byte{2});
  EXPECT_EQ(file->find_tensor("other"), nullptr);
}

TEST(Gguf, AccessorsNameKeyTypeAndLimit) {
  const Bytes bytes = small_writer().finish();
  const Result<GgufFile> file = GgufFile::parse("small.gguf", bytes);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const GgufMetadata& m = file->metadata();
  EXPECT_EQ(m.get_u32("none").status().message(), "small.gguf: metadata key 'none' is missing");
  EXPECT_EQ(*m.get_u32("none", 9), 9u);
  EXPECT_EQ(*m.get_string("none", "x"), "x");
  EXPECT_EQ(m.get_u32("f32", 9).status().message(),
            "small.gguf: metadata key 'f32' is float32, expected an integer");
  EXPECT_EQ(m.get_u32("i32").status().message(), "small.gguf: metadata key 'i32' is -5, expected 0 or more");
  EXPECT_EQ(m.get_u32("u64").status().message(),
            "small.gguf: metadata key 'u64' is 1099511627776, limit 4294967295");
  EXPECT_EQ(m.get_string("ints").status().message(),
            "small.gguf: metadata key 'ints' is an array of 3 int32, expected a string");
  EXPECT_EQ(m.get_strings("ints").status().message(),
            "small.gguf: metadata key 'ints' is an array of 3 int32, expected an array of strings");
  EXPECT_FALSE(m.get_f32s("ints").is_ok());
  EXPECT_FALSE(m.get_i32s("strings").is_ok());
  EXPECT_FALSE(m.get_i32s("floats").is_ok());
  EXPECT_FALSE(m.get_bool("u8").is_ok());
  EXPECT_FALSE(m.get_strings("u8").is_ok());
  EXPECT_FALSE(m.get_f32("u32").is_ok());
}

TEST(Gguf, QuotesBytesThatWouldDisturbATerminal) {
  EXPECT_EQ(printable("a\x1b[0m\n\xff"), "'a\\x1b[0m\\x0a\\xff'");
  EXPECT_EQ(printable(std::string(100, 'x')), "'" + std::string(64, 'x') + "...'");
}

// Crafted headers, each with one lie. See the parser's limits.
struct Lie {
  const char* name;
  Bytes bytes;
  const char* expected;
};

Bytes header(uint64_t tensors, uint64_t keys) {
  return bytes_of(uint32_t(0x46554747)) + bytes_of<uint32_t>(3) + bytes_of(tensors) + bytes_of(keys);
}

Bytes text(std::string_view s) {
  const auto* p = reinterpret_cast<const std::byte*>(s.data());
  return bytes_of<uint64_t>(s.size()) + Bytes(p, p + s.size());
}

Bytes tensor(std::string_view name, std::vector<int64_t> dims, uint32_t type, uint64_t offset) {
  Bytes bytes = text(name) + bytes_of(uint32_t(dims.size()));
  for (const int64_t dim : dims) bytes = std::move(bytes) + bytes_of(dim);
  return bytes + bytes_of(type) + bytes_of(offset) + Bytes(64);
}

Bytes key_value(std::string_view key, uint32_t type, const Bytes& value) {
  return header(0, 1) + text(key) + bytes_of(type) + value + Bytes(64);
}

std::vector<Lie> lies() {
  constexpr uint64_t kHuge = uint64_t(1) << 63;
  const auto array = [](uint32_t element, uint64_t count) { return bytes_of(element) + bytes_of(count); };
  const auto align = [](uint32_t v) { return key_value("general.alignment", 4, bytes_of(v)); };
  return {
      {"key count", header(0, kHuge) + Bytes(64), "metadata key count is 9223372036854775808, limit 65536"},
      {"key count past the end", header(0, 60000) + Bytes(64),
       "file is truncated: need 840024 bytes, have 88"},
      {"tensor count", header(kHuge, 0) + Bytes(64), "tensor count is 9223372036854775808, limit 65536"},
      {"key length", header(0, 1) + bytes_of(kHuge) + Bytes(64),
       "string of 9223372036854775808 bytes, limit 65536"},
      {"string length", key_value("k", 8, bytes_of(kHuge)), "'k': length 9223372036854775808 is impossible"},
      {"string past the end", key_value("k", 8, bytes_of<uint64_t>(1000)),
       "file is truncated: need 1045 bytes"},
      {"value type", key_value("k", 13, {}), "'k': unknown value type 13"},
      {"array length", key_value("k", 9, array(4, kHuge)), "'k': length 9223372036854775808 is impossible"},
      {"array product", key_value("k", 9, array(10, (uint64_t(1) << 61) + 1)),
       "'k': length 2305843009213693953 is impossible"},
      {"array past the end", key_value("k", 9, array(4, 1000)), "file is truncated: need 4049 bytes"},
      {"array of arrays", key_value("k", 9, array(9, 1)), "'k': arrays of arrays are not supported"},
      {"array element type", key_value("k", 9, array(99, 1)), "'k': unknown array element type 99"},
      {"string array", key_value("k", 9, array(8, kHuge)),
       "'k': array of 9223372036854775808 strings, limit 4194304"},
      {"string in array", key_value("k", 9, array(8, 1) + bytes_of(kHuge)),
       "'k', string 0 of 1: length 9223372036854775808"},
      {"empty key", key_value("", 0, {}), "metadata key 0 of 1 is empty"},
      {"key twice",
       header(0, 2) + text("k") + bytes_of<uint32_t>(0) + Bytes(1) + text("k") + bytes_of<uint32_t>(0) +
           Bytes(9),
       "metadata key 'k' appears twice"},
      {"alignment 2^30", align(1 << 30),
       "'general.alignment' is 1073741824, expected a power of two from 8 to 65536"},
      {"alignment 0", align(0), "'general.alignment' is 0"},
      {"alignment 48", align(48), "'general.alignment' is 48"},
      {"alignment type", key_value("general.alignment", 8, text("32")),
       "'general.alignment' is string, expected uint32"},
      {"five dims", header(1, 0) + tensor("t", {1, 1, 1, 1, 1}, 0, 0), "'t': 5 dimensions, expected 1 to 4"},
      {"no dims", header(1, 0) + tensor("t", {}, 0, 0), "'t': 0 dimensions"},
      {"zero dim", header(1, 0) + tensor("t", {32, 0}, 0, 0), "'t': dimension 1 is 0"},
      {"negative dim", header(1, 0) + tensor("t", {int64_t(kHuge)}, 0, 0),
       "'t': dimension 0 is 9223372036854775808"},
      {"dims wrap", header(1, 0) + tensor("t", {int64_t(1) << 32, int64_t(1) << 32}, 0, 0),
       "'t': the product of its dimensions"},
      {"bytes wrap", header(1, 0) + tensor("t", {int64_t(1) << 62}, 0, 0), "are more than 2^64 bytes"},
      {"tensor type", header(1, 0) + tensor("t", {32}, 23, 0),
       "'t': type 23 (IQ4_XS) is not supported; supported are F32"},
      {"block", header(1, 0) + tensor("t", {33}, 8, 0),
       "'t': dimension 0 is 33, Q8_0 needs a multiple of 32"},
      {"offset past the end", header(1, 0) + tensor("t", {32}, 0, 1 << 20),
       "file is truncated: need 1048768 bytes"},
      {"offset wraps", header(1, 0) + tensor("t", {32}, 0, ~uint64_t(31)),
       "'t': offset 18446744073709551584 and size"},
      {"offset alignment", header(1, 0) + tensor("t", {8}, 0, 4),
       "'t': offset 4 is not a multiple of the alignment 32"},
      {"tensor twice", header(2, 0) + tensor("t", {1}, 0, 0), "tensor"},
      {"tensor name", header(1, 0) + tensor(std::string(300, 'n'), {1}, 0, 0),
       "tensor name: string of 300 bytes, limit 255"},
      {"empty tensor name", header(1, 0) + tensor("", {1}, 0, 0), "the name of tensor 0 of 1 is empty"},
      {"version 1", bytes_of(uint32_t(0x46554747)) + bytes_of<uint32_t>(1) + Bytes(64),
       "GGUF version 1, supported are 2 and 3"},
      {"big-endian", bytes_of(uint32_t(0x46554747)) + bytes_of<uint32_t>(0x03000000) + Bytes(64),
       "big-endian"},
      {"only magic", bytes_of(uint32_t(0x46554747)), "file is truncated: need 8 bytes, have 4 (version)"},
  };
}

TEST(KnownFailures, A_GG_1_crafted_headers_are_refused_by_name) {
  for (const Lie& lie : lies()) {
    EXPECT_LT(lie.bytes.size(), 2048u) << lie.name;
    EXPECT_PRED2(contains, parse_error(lie.bytes), "bad.gguf: ") << lie.name;
    EXPECT_PRED2(contains, parse_error(lie.bytes), lie.expected) << lie.name;
  }
}

// Reads everything that a parsed file offers: under AddressSanitizer a view that leaves the file is found.
size_t touch(const GgufFile& file) {
  size_t sum = 0;
  for (const std::string_view key : file.metadata().keys()) {
    const Result<std::vector<std::string_view>> strings = file.metadata().get_strings(key);
    if (strings.is_ok()) {
      for (const std::string_view s : *strings) sum += s.empty() ? 0 : size_t(s.front()) + size_t(s.back());
    }
    const auto numbers = file.metadata().get_i32s(key);
    if (numbers.is_ok()) sum += numbers->size();
    const auto floats = file.metadata().get_f32s(key);
    if (floats.is_ok()) sum += floats->size();
    sum += file.metadata().get_u64(key).is_ok();
    sum += file.metadata().get_f32(key).is_ok();
  }
  for (const GgufTensor& t : file.tensors()) sum += size_t(t.data.front()) + size_t(t.data.back());
  return sum;
}

TEST(KnownFailures, A_GG_1_mutated_headers) {
  constexpr int kMutations = 12000;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const Bytes original = small_writer().finish();
  const size_t header_bytes = GgufFile::parse("small.gguf", original)->data_offset();
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    Bytes mutated = original;
    testing::mutate_header(mutated, header_bytes, random);
    const testing::Cost cost;
    const Result<GgufFile> file = GgufFile::parse("mutated.gguf", mutated);
    if (file.is_ok()) {
      touch(*file);
    } else {
      ++refused;
      ASSERT_PRED2(contains, file.status().message(), "mutated.gguf: ") << "mutation " << i;
    }
    ASSERT_LT(cost.seconds(), 1.0) << "mutation " << i;
    ASSERT_LT(cost.allocated(), size_t(100) << 20) << "mutation " << i;
  }
  EXPECT_GT(refused, kMutations / 2);
  EXPECT_LT(refused, kMutations);
}

class TempFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("gguf_test_{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, std::span<const std::byte> bytes) {
    std::string path = folder_ / name;
    EXPECT_TRUE(testing::write_file(path, bytes).is_ok());
    return path;
  }
  static std::string open_error(const std::string& path) {
    const Result<GgufFile> file = GgufFile::open(path);
    return file.is_ok() ? "" : file.status().message();
  }
  std::filesystem::path folder_;
};

using KnownFailures_A_GG_2 = TempFiles;

TEST_F(KnownFailures_A_GG_2, cut_files_say_how_much_is_missing) {
  const Bytes whole = testing::tiny_llama();
  EXPECT_EQ(open_error(write("whole.gguf", whole)), "");
  const size_t last_tensor_end = [&] {
    const Result<GgufFile> file = GgufFile::parse("whole", whole);
    size_t end = 0;
    for (const GgufTensor& t : file->tensors())
      end = std::max<size_t>(end, size_t(t.data.data() + t.data.size() - whole.data()));
    return end;
  }();
  EXPECT_EQ(last_tensor_end, whole.size());
  for (const size_t kept :
       {whole.size() / 100, whole.size() / 10, whole.size() * 99 / 100, whole.size() - 1}) {
    const std::string path = write("cut.gguf", std::span(whole).first(kept));
    EXPECT_PRED2(contains, open_error(path), "cut.gguf: file is truncated: need ");
    EXPECT_PRED2(contains, open_error(path), fmt::format("have {} (", kept));
  }
  const std::string path = write("cut.gguf", std::span(whole).first(whole.size() - 1));
  EXPECT_PRED2(contains, open_error(path),
               fmt::format("need {} bytes, have {}", whole.size(), whole.size() - 1));
}

TEST_F(KnownFailures_A_GG_2, other_things_than_model_files) {
  const auto raw = [](std::string_view s) { return std::as_bytes(std::span(s)); };
  EXPECT_PRED2(contains, open_error(folder_), "is a directory");
  EXPECT_PRED2(contains, open_error(folder_ / "none.gguf"), "none.gguf: cannot open: No such file");
  EXPECT_PRED2(contains, open_error("/dev/null"), "is not a regular file");
  EXPECT_PRED2(contains, open_error(write("empty.gguf", {})), "file is empty (0 bytes)");
  const std::string_view json = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const Bytes safetensors = text(json) + Bytes(4);
  EXPECT_PRED2(contains, open_error(write("model.safetensors", safetensors)), "this is a safetensors file");
  EXPECT_PRED2(contains, open_error(write("page.gguf", raw("<!DOCTYPE html><html>"))), "this is a web page");
  EXPECT_PRED2(contains, open_error(write("lfs.gguf", raw("version https://git-lfs.github.com/spec/v1\n"))),
               "Git LFS pointer");
  EXPECT_PRED2(contains, open_error(write("torch.bin", raw("PK\x03\x04 and so on"))), "PyTorch");
  EXPECT_PRED2(contains, open_error(write("old.bin", raw("tjgg and so on"))), "before GGUF");
  EXPECT_PRED2(contains, open_error(write("text.txt", raw("hello"))), "this is not a GGUF file");
  EXPECT_PRED2(contains, open_error(write("g.gguf", raw("GG"))), "this is not a GGUF file");
}

}  // namespace
}  // namespace gapless
