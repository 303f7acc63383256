#include "model/inspect.h"

#include <gtest/gtest.h>

#include "model/testing/tiny_model.h"

namespace gapless {
namespace {

using testing::GgufWriter;

TEST(InspectModel, counts_what_the_file_has) {
  const testing::Bytes bytes = testing::tiny_llama();
  const GgufFile file = GgufFile::parse("tiny.gguf", bytes).value();
  const Result<ModelSummary> summary = inspect_model(file);
  ASSERT_TRUE(summary.is_ok()) << summary.status().message();
  EXPECT_EQ(summary->config.architecture, "llama");
  EXPECT_EQ(summary->tokenizer, "gpt2 (smollm)");
  EXPECT_TRUE(summary->has_chat_template);
  EXPECT_FALSE(summary->tied_embeddings);
  EXPECT_EQ(summary->file_bytes, int64_t(bytes.size()));
  EXPECT_EQ(summary->tensors.size(), 21u);
  EXPECT_EQ(summary->tensors[0].name, "token_embd.weight");
  EXPECT_EQ(summary->tensors[0].dtype, "F16");
  EXPECT_EQ(summary->tensors[0].shape, "[64, 512]");
  EXPECT_EQ(summary->tensors[0].bytes, 64 * 512 * 2);
  // Two heads of 32, two layers, K and V, 16 bits.
  EXPECT_EQ(summary->config.kv_bytes_per_token(KvDtype::kF16), 2 * 2 * 2 * 32 * 2);
  const int64_t embeddings = 2 * 512 * 64, norms = 5 * 64;
  const int64_t layer = 64 * (128 + 64 + 64) + 128 * 64 + 3 * 64 * 256;
  EXPECT_EQ(summary->config.n_params, embeddings + norms + 2 * layer);
  EXPECT_EQ(summary->memory_bytes(1000) - summary->weight_bytes,
            1000 * summary->config.kv_bytes_per_token(KvDtype::kF16));
  int64_t tensors = 0, elements = 0, bytes_of_types = 0;
  for (const TypeSummary& type : summary->types) {
    tensors += type.tensors;
    elements += type.elements;
    bytes_of_types += type.bytes;
  }
  EXPECT_EQ(tensors, 21);
  EXPECT_EQ(elements, summary->config.n_params);
  EXPECT_DOUBLE_EQ(summary->bits_per_weight, 8.0 * double(bytes_of_types) / double(elements));
  EXPECT_GE(summary->types.front().bytes, summary->types.back().bytes);
  // Repacked weights are larger than the file's at most by wider scales and padding.
  EXPECT_GE(summary->weight_bytes, bytes_of_types);
  EXPECT_LT(summary->weight_bytes, bytes_of_types * 3 / 2);
}

TEST(InspectModel, names_the_type_of_most_weights) {
  const testing::Bytes bytes = testing::tiny_gemma3({.dtype = DType::kQ5_1});
  const GgufFile file = GgufFile::parse("tiny.gguf", bytes).value();
  EXPECT_EQ(inspect_model(file)->config.quantisation, "Q5_1");
  EXPECT_TRUE(inspect_model(file)->tied_embeddings);
  EXPECT_FALSE(inspect_model(file)->has_chat_template);
}

TEST(InspectModel, unknown_architecture_is_an_error) {
  GgufWriter writer;
  writer.add_string("general.architecture", "mamba");
  const testing::Bytes bytes = writer.finish();
  const GgufFile file = GgufFile::parse("tiny.gguf", bytes).value();
  EXPECT_EQ(inspect_model(file).status().message(),
            "tiny.gguf: architecture 'mamba' is not known; known are: llama, gemma3, sim");
}

}  // namespace
}  // namespace gapless
