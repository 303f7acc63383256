#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/isa.h"
#include "model/registry.h"
#include "model/testing/gguf_mutations.h"
#include "model/testing/model_harness.h"
#include "model/testing/naive_decoder.h"
#include "model/testing/quantise.h"
#include "model/testing/tiny_model.h"
#include "model/testing/tiny_vocab.h"

namespace gapless {
namespace {

using testing::Bytes;
using testing::GgufWriter;
using testing::HarnessOptions;
using testing::HarnessRow;
using testing::ModelHarness;
using testing::TinyModelOptions;

using Logits = std::vector<std::vector<float>>;
using MakeTiny = Bytes (*)(const TinyModelOptions&);

std::vector<int32_t> random_ids(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = int32_t(random() % testing::kTinyVocab);
  return ids;
}

// A tiny model with its file's memory.
struct Tiny {
  Tiny(MakeTiny make, const TinyModelOptions& tiny,
       HarnessOptions options = {.table = op_table(Isa::kReference)})
      : bytes(make(tiny)),
        file(GgufFile::parse("tiny.gguf", bytes).value()),
        harness(ModelHarness::create(file, options).value()) {}
  Bytes bytes;
  GgufFile file;
  std::unique_ptr<ModelHarness> harness;
};

std::string load_error(const Bytes& bytes) {
  const GgufFile file = GgufFile::parse("tiny.gguf", bytes).value();
  const auto harness = ModelHarness::create(file, {.table = op_table(Isa::kReference)});
  return harness.is_ok() ? "" : harness.status().message();
}

class TinyModels : public ::testing::TestWithParam<MakeTiny> {};
INSTANTIATE_TEST_SUITE_P(Architectures, TinyModels,
                         ::testing::Values(testing::tiny_llama, testing::tiny_gemma3),
                         [](const auto& info) { return info.index == 0 ? "llama" : "gemma3"; });

TEST_P(TinyModels, chunks_and_page_sizes_do_not_change_a_bit) {
  const std::vector<int32_t> ids = random_ids(100, 1);
  for (const KvDtype dtype : kKvDtypes) {
    SCOPED_TRACE(kv_dtype_name(dtype));
    const auto tiny = [&](int32_t page_size) {
      return Tiny(
          GetParam(), {},
          {.table = op_table(Isa::kReference), .max_rows = 100, .page_size = page_size, .kv_dtype = dtype});
    };
    const Tiny whole = tiny(16);
    const Logits expected = whole.harness->run(ids, 100);
    ASSERT_EQ(expected.size(), ids.size());
    for (const int32_t chunk : {1, 7, 16, 64})
      EXPECT_EQ(whole.harness->run(ids, chunk, 1), expected) << "chunk " << chunk;
    EXPECT_EQ(tiny(1).harness->run(ids, 33), expected);
  }
}

TEST_P(TinyModels, instruction_sets_agree_in_every_bit) {
  const std::vector<int32_t> ids = random_ids(70, 11);
  for (const KvDtype dtype : kKvDtypes) {
    SCOPED_TRACE(kv_dtype_name(dtype));
    const auto run = [&](Isa isa, int threads) {
      return Tiny(GetParam(), {}, {.table = op_table(isa), .kv_dtype = dtype, .threads = threads})
          .harness->run(ids, 40);
    };
    const Logits expected = run(Isa::kReference, 0);
    EXPECT_EQ(run(Isa::kReference, 3), expected) << "three threads";
    for (const Isa isa : kIsas) {
      if (isa == Isa::kReference || !op_table(isa)) continue;
      EXPECT_EQ(run(isa, 0), expected) << isa_name(isa);
      EXPECT_EQ(run(isa, 3), expected) << isa_name(isa) << ", three threads";
    }
  }
}

// One row after another, where attention is cut over the KV blocks, by any number of threads.
TEST_P(TinyModels, a_long_answer_is_the_same_on_any_number_of_threads) {
  const std::vector<int32_t> ids = random_ids(400, 13);
  const auto run = [&](int threads, int32_t chunk) {
    return Tiny(GetParam(), {}, {.table = op_table(best_isa()), .max_tokens = 400, .threads = threads})
        .harness->run(ids, chunk);
  };
  const Logits expected = run(1, 64);
  for (const int threads : {1, 2, 3, 4}) EXPECT_EQ(run(threads, 1), expected) << threads << " threads";
}

TEST_P(TinyModels, interleaved_sequences_equal_each_alone) {
  Tiny tiny(GetParam(), {});
  const std::vector<int32_t> a = random_ids(40, 2), b = random_ids(55, 3);
  const Logits alone_a = tiny.harness->run(a, 64, 0), alone_b = tiny.harness->run(b, 64, 1);
  // Slot 2 gets three tokens of a, slot 3 five of b, in every step.
  Logits mixed_a, mixed_b;
  for (int32_t at_a = 0, at_b = 0; at_a < 40 || at_b < 55;) {
    std::vector<HarnessRow> rows;
    for (int i = 0; i < 3 && at_a < 40; ++i, ++at_a) rows.push_back({2, at_a, a[size_t(at_a)]});
    for (int i = 0; i < 5 && at_b < 55; ++i, ++at_b) rows.push_back({3, at_b, b[size_t(at_b)]});
    tiny.harness->step(rows, [&](size_t row, std::span<const float> logits) {
      (rows[row].slot == 2 ? mixed_a : mixed_b).emplace_back(logits.begin(), logits.end());
    });
  }
  EXPECT_EQ(mixed_a, alone_a);
  EXPECT_EQ(mixed_b, alone_b);
}

// Root mean square of the difference over that of the expected values, and the largest difference.
struct Difference {
  double relative = 0, largest = 0;
};

Difference difference(const Logits& got, const std::vector<std::vector<double>>& expected) {
  Difference out;
  double squares = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t j = 0; j < expected[i].size(); ++j) {
      const double d = double(got[i][j]) - expected[i][j];
      squares += d * d;
      norm += expected[i][j] * expected[i][j];
      out.largest = std::max(out.largest, std::fabs(d));
    }
  }
  out.relative = std::sqrt(squares / norm);
  return out;
}

Difference against_naive(MakeTiny make, const TinyModelOptions& options, KvDtype dtype = KvDtype::kF16) {
  Tiny tiny(make, options, {.table = op_table(Isa::kReference), .kv_dtype = dtype});
  const std::vector<int32_t> ids = random_ids(64, 4);
  return difference(tiny.harness->run(ids, 16), testing::naive_logits(tiny.file, ids));
}

// Float weights: only the 16-bit KV cache and float32 sums differ from double precision.
TEST_P(TinyModels, float_weights_match_double_precision) {
  const Difference d = against_naive(GetParam(), {.dtype = DType::kF32});
  EXPECT_LT(d.relative, 1e-3);
  EXPECT_LT(d.largest, 0.02);
  EXPECT_GT(d.relative, 0);
}

// K and V in 8 bits are as near as their steps of 1/127 of the largest element allow.
TEST_P(TinyModels, a_smaller_kv_cache_is_near_double_precision) {
  EXPECT_LT(against_naive(GetParam(), {.dtype = DType::kF32}, KvDtype::kBF16).relative, 0.01);
  const double int8 = against_naive(GetParam(), {.dtype = DType::kF32}, KvDtype::kI8).relative;
  EXPECT_LT(int8, 0.03);
  EXPECT_GT(int8, 1e-3);
}

// Quantised weights read activations of 8 bits.
TEST_P(TinyModels, every_weight_type_matches_double_precision) {
  EXPECT_LT(against_naive(GetParam(), {}).relative, 0.035) << "mixture";
  for (const DType type : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                           DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    EXPECT_LT(against_naive(GetParam(), {.dtype = type}).relative, 0.035) << dtype_info(uint32_t(type))->name;
  }
}

TEST_P(TinyModels, greedy_answers_are_varied) {
  for (const uint64_t seed : {1, 2, 3}) {
    Tiny tiny(GetParam(), {.seed = seed});
    std::set<int32_t> seen;
    for (const uint64_t prompt : {5, 6, 7, 8}) {
      const std::vector<int32_t> tokens =
          tiny.harness->greedy(random_ids(12, prompt), 40, int32_t(prompt % 4));
      EXPECT_GT(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 8u)
          << "seed " << seed << " prompt " << prompt;
      seen.insert(tokens.begin(), tokens.end());
    }
    EXPECT_GT(seen.size(), 40u) << "seed " << seed;
  }
}

TEST_P(TinyModels, config_of_the_file) {
  Tiny tiny(GetParam(), {});
  const ModelConfig& c = tiny.harness->model().config();
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.dim, 64);
  EXPECT_EQ(c.vocab_size, 512);
  EXPECT_EQ(c.context_length, 2048);
  EXPECT_EQ(c.kv_bytes_per_token(KvDtype::kF16), 2 * 2 * 2 * c.head_dim * 2);
}

// 500 is not a multiple of the 16 rows of a packed group.
TEST_P(TinyModels, vocabulary_that_needs_padding) {
  Tiny tiny(GetParam(), {.vocab = 500, .dtype = DType::kF32});
  EXPECT_EQ(tiny.harness->model().config().vocab_size, 500);
  std::vector<int32_t> ids = random_ids(20, 12);
  for (int32_t& id : ids) id %= 500;
  ids.back() = 499;
  EXPECT_LT(difference(tiny.harness->run(ids, 20), testing::naive_logits(tiny.file, ids)).relative, 1e-3);
}

// A header that parses but says something else than the model's own: loading and running it is an error or
// works, nothing in between.
TEST_P(TinyModels, A_GG_1_mutated_headers_load_or_are_refused) {
  constexpr int kMutations = 600;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const Bytes original = GetParam()({.vocab = 400});
  const size_t header_bytes = GgufFile::parse("tiny.gguf", original)->data_offset();
  int loaded = 0;
  for (int i = 0; i < kMutations; ++i) {
    Bytes mutated = original;
    // The model's own keys come first and the tensors last; the vocabulary lies between.
    const std::span<std::byte> header = std::span(mutated).first(header_bytes);
    testing::overwrite_header(i % 2 ? header.first(700) : header.last(2000), random);
    const Result<GgufFile> file = GgufFile::parse("mutated.gguf", mutated);
    if (!file.is_ok()) continue;
    const auto harness = ModelHarness::create(
        *file, {.table = op_table(best_isa()), .max_rows = 4, .slots = 1, .max_tokens = 64});
    if (!harness.is_ok()) {
      ASSERT_NE(harness.status().message().find("mutated.gguf: "), std::string::npos)
          << harness.status().message();
      continue;
    }
    ++loaded;
    const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
    EXPECT_EQ((*harness)->run(ids, 4).size(), ids.size());
  }
  EXPECT_GT(loaded, 0);
}

TEST(Llama, tied_head_and_rope_scaling_match_double_precision) {
  EXPECT_LT(against_naive(testing::tiny_llama, {.tied = true, .dtype = DType::kF32}).relative, 1e-3);
  EXPECT_LT(against_naive(testing::tiny_llama, {.llama3_rope = true, .dtype = DType::kF32}).relative, 1e-3);
  const auto linear = [](GgufWriter& writer) {
    writer.add_string("llama.rope.scaling.type", "linear");
    writer.add_f32("llama.rope.scaling.factor", 4);
  };
  EXPECT_LT(against_naive(testing::tiny_llama, {.dtype = DType::kF32, .edit = linear}).relative, 1e-3);
}

// The three scalings are three different models: none of the comparisons above holds by accident.
TEST(Llama, rope_scaling_changes_the_answer) {
  const std::vector<int32_t> ids = random_ids(30, 9);
  const auto last = [&](const TinyModelOptions& options) {
    return Tiny(testing::tiny_llama, options).harness->run(ids, 30).back();
  };
  const auto linear = [](GgufWriter& writer) { writer.add_f32("llama.rope.scaling.factor", 4); };
  const auto plain = last({});
  EXPECT_NE(plain, last({.llama3_rope = true}));
  EXPECT_NE(plain, last({.edit = linear}));
}

TEST(Gemma3, linear_scaling_is_for_global_layers_only) {
  const auto linear = [](GgufWriter& writer) {
    writer.add_string("gemma3.rope.scaling.type", "linear");
    writer.add_f32("gemma3.rope.scaling.factor", 8);
  };
  EXPECT_LT(against_naive(testing::tiny_gemma3, {.dtype = DType::kF32, .edit = linear}).relative, 1e-3);
}

void expect_refused(MakeTiny make, const std::function<void(GgufWriter&)>& edit,
                    const std::string& expected) {
  const std::string error = load_error(make({.edit = edit}));
  EXPECT_NE(error.find("tiny.gguf: "), std::string::npos) << error;
  EXPECT_NE(error.find(expected), std::string::npos) << error;
}

void add_floats(GgufWriter& writer, const std::string& name, std::vector<int64_t> dims) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= size_t(dim);
  writer.add_tensor(name, dims, DType::kF32, Bytes(4 * count));
}

TEST(LoadModel, tensors_that_do_not_fit_are_named) {
  const auto without = [](const std::string& name) { return [=](GgufWriter& w) { w.remove_tensor(name); }; };
  const auto reshaped = [](const std::string& name, std::vector<int64_t> dims) {
    return [=](GgufWriter& w) {
      w.remove_tensor(name);
      add_floats(w, name, dims);
    };
  };
  const auto also = [](const std::string& name) { return [=](GgufWriter& w) { add_floats(w, name, {64}); }; };
  expect_refused(testing::tiny_llama, without("blk.1.attn_q.weight"),
                 "tensor 'blk.1.attn_q.weight' is missing (expected a matrix [64, 128])");
  expect_refused(testing::tiny_llama, without("token_embd.weight"), "tensor 'token_embd.weight' is missing");
  expect_refused(testing::tiny_llama, reshaped("blk.0.ffn_up.weight", {64, 128}),
                 "tensor 'blk.0.ffn_up.weight' is F32 [64, 128], expected a matrix [64, 256]");
  expect_refused(testing::tiny_llama, reshaped("output_norm.weight", {63}),
                 "'output_norm.weight' is F32 [63], expected F32, F16 or BF16 [64]");
  expect_refused(testing::tiny_llama, also("blk.0.attn_q.bias"),
                 "1 tensors have no place in this architecture: 'blk.0.attn_q.bias'");
  expect_refused(testing::tiny_gemma3, without("blk.0.post_ffw_norm.weight"),
                 "'blk.0.post_ffw_norm.weight' is missing");
}

TEST(LoadModel, metadata_that_is_not_supported_is_named) {
  const auto text = [](const std::string& key, const std::string& value) {
    return [=](GgufWriter& w) { w.add_string(key, value); };
  };
  const auto number = [](const std::string& key, uint32_t value) {
    return [=](GgufWriter& w) { w.add_u32(key, value); };
  };
  expect_refused(testing::tiny_llama, text("llama.rope.scaling.type", "yarn"),
                 "'llama.rope.scaling.type' is 'yarn'; supported are");
  expect_refused(testing::tiny_llama, number("llama.expert_count", 8), "mixture of 8 experts");
  expect_refused(testing::tiny_llama, number("split.count", 3), "one of 3 parts");
  expect_refused(testing::tiny_gemma3, number("gemma3.final_logit_softcapping", 30),
                 "softcapping is not supported");
}

// A file with only metadata: what is wrong must be found before anything is allocated by it.
std::string config_error(const std::function<void(GgufWriter&)>& edit) {
  GgufWriter writer;
  edit(writer);
  return load_error(writer.finish());
}

TEST(LoadModel, sizes_are_checked_before_they_are_used) {
  const auto with = [](uint32_t layers, uint32_t heads, uint32_t kv_heads, uint32_t key_length) {
    return config_error([=](GgufWriter& w) {
      w.add_string("general.architecture", "llama");
      w.add_u32("llama.block_count", layers);
      w.add_u32("llama.embedding_length", 64);
      w.add_u32("llama.feed_forward_length", 256);
      w.add_u32("llama.context_length", 2048);
      w.add_u32("llama.attention.head_count", heads);
      w.add_u32("llama.attention.head_count_kv", kv_heads);
      w.add_u32("llama.attention.key_length", key_length);
    });
  };
  EXPECT_EQ(with(4000000000u, 4, 2, 32),
            "tiny.gguf: metadata key 'llama.block_count' is 4000000000, expected 1 to 1024");
  EXPECT_EQ(with(2, 0, 2, 32),
            "tiny.gguf: metadata key 'llama.attention.head_count' is 0, expected 1 to 1024");
  EXPECT_EQ(with(2, 4, 3, 32), "tiny.gguf: 4 attention heads are not a multiple of 3 KV heads");
  EXPECT_EQ(with(2, 4, 2, 4096),
            "tiny.gguf: metadata key 'llama.attention.key_length' is 4096, expected 1 to 512");
  EXPECT_EQ(with(2, 4, 2, 24),
            "tiny.gguf: attention heads of 24 elements, expected a multiple of 16 up to 512");
}

TEST(LoadModel, unknown_architecture_lists_the_known_ones) {
  const auto arch = [](const std::string& name) {
    return config_error([=](GgufWriter& w) { w.add_string("general.architecture", name); });
  };
  EXPECT_EQ(arch("mamba"), "tiny.gguf: architecture 'mamba' is not known; known are: llama, gemma3, sim");
  EXPECT_EQ(config_error([](GgufWriter&) {}), "tiny.gguf: metadata key 'general.architecture' is missing");
}

}  // namespace
}  // namespace gapless
