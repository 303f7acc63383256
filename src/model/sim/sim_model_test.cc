// The simulated model: its answer is a pure function of the ids, and of nothing else that it reads.
#include "model/sim/sim_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "device/registry.h"
#include "model/sim/sim_file.h"

namespace gapless {
namespace {

constexpr int32_t kSlots = 3, kMaxTokens = 256;

// One model with a KV cache whose page table the test may spoil. Ops run on the calling thread.
class SimModelRun {
 public:
  explicit SimModelRun(SimReadback readback, int32_t page_size = 4, int32_t vocab = 256)
      : page_size_(page_size), pages_((kMaxTokens + page_size - 1) / page_size) {
    SimProfile profile = find_sim_profile("zero").value();
    profile.model.reads_all = readback == SimReadback::kAll;
    profile.model.vocab_size = vocab;
    model_ = make_sim_model(profile);
    CHECK(model_->reserve(*device_, kMaxTokens).is_ok());
    k.assign(size_t(1 + pages_ * kSlots) * size_t(page_size), 0);
    v = k;
    for (int32_t slot = 0; slot < kSlots; ++slot)
      for (int32_t p = 0; p < pages_; ++p) page_table.push_back(1 + p * kSlots + slot);
  }

  // Writes ids at positions begin .. of a slot; the logits after the last one.
  std::vector<float> step(int32_t slot, std::span<const int32_t> ids, int32_t begin) {
    const std::vector<int32_t> slots(ids.size(), slot);
    std::vector<int32_t> positions(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) positions[i] = begin + int32_t(i);
    const auto n = int32_t(ids.size());
    const int32_t last = n - 1, one = 1, vocab = model_->config().vocab_size;
    const ForwardInputs in{.n_rows = &n,
                           .max_rows = n,
                           .ids = ids.data(),
                           .positions = positions.data(),
                           .slots = slots.data(),
                           .tiles = nullptr,
                           .n_tiles = nullptr,
                           .max_tiles = 0,
                           .logit_rows = &last,
                           .n_logit_rows = &one};
    const KvView kv{reinterpret_cast<std::byte*>(k.data()),
                    reinterpret_cast<std::byte*>(v.data()),
                    0,
                    KvDtype::kF16,
                    page_size_,
                    page_table.data(),
                    pages_};
    OpList ops;
    std::vector<float> logits(size_t(vocab), -1);
    model_->forward(ops, OpTable{}, in, kv);
    model_->logits(ops, OpTable{}, in, 0, 1, logits.data(), vocab);
    OpContext context;
    for (const Op& op : ops.ops())
      for (int32_t chunk = 0; chunk < op.chunks(op.params); ++chunk) op.run(op.params, chunk, context);
    return logits;
  }
  // Of the context in `slot`: its last token is written again.
  std::vector<float> again(int32_t slot, std::span<const int32_t> ids) {
    return step(slot, ids.last(1), int32_t(ids.size()) - 1);
  }
  size_t kv_index(int32_t slot, int32_t position) const {
    return size_t(page_table[size_t(slot * pages_ + position / page_size_)] * page_size_ +
                  position % page_size_);
  }
  int32_t& page(int32_t slot, int32_t index) { return page_table[size_t(slot * pages_ + index)]; }

  std::vector<uint16_t> k, v;
  std::vector<int32_t> page_table;

 private:
  const int32_t page_size_, pages_;
  std::unique_ptr<Device> device_ = make_device("cpu", {.threads = 1}).value();
  std::unique_ptr<Model> model_;
};

std::vector<int32_t> random_ids(size_t n, uint32_t seed, int32_t vocab = 256) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = int32_t(random() % uint32_t(vocab));
  return ids;
}

constexpr SimReadback kBoth[] = {SimReadback::kAll, SimReadback::kSample};

TEST(SimModel, LogitsAreAFunctionOfTheIds) {
  for (const SimReadback readback : kBoth)
    for (const int32_t page_size : {1, 4, 16})
      for (const size_t n : {1u, 15u, 16u, 31u, 32u, 33u, 64u, 200u}) {
        const std::vector<int32_t> ids = random_ids(n, uint32_t(n));
        const std::vector<float> expected = sim_logits(ids, 256, readback);
        SimModelRun whole(readback, page_size), cut(readback, page_size);
        EXPECT_EQ(whole.step(1, ids, 0), expected);
        std::vector<float> last;
        for (size_t at = 0; at < n; at += 7)
          last = cut.step(2, std::span(ids).subspan(at, std::min<size_t>(7, n - at)), int32_t(at));
        EXPECT_EQ(last, expected) << n << " tokens, pages of " << page_size;
      }
}

TEST(SimModel, EveryPositionThatCountsChangesTheAnswer) {
  const std::vector<int32_t> ids = random_ids(100, 1);
  for (const SimReadback readback : kBoth) {
    SimModelRun run(readback);
    const std::vector<float> expected = run.step(1, ids, 0);
    std::vector<bool> counts(ids.size());
    for_each_sim_range(100, readback,
                       [&](int32_t b, int32_t e) { std::fill_n(counts.begin() + b, e - b, true); });
    for (int32_t p = 0; p < 99; ++p) {  // the last one is written again
      for (std::vector<uint16_t>* kv : {&run.k, &run.v}) {
        uint16_t& element = (*kv)[run.kv_index(1, p)];
        const uint16_t former = std::exchange(element, uint16_t(0xffff));  // as poison does
        EXPECT_EQ(run.again(1, ids) != expected, counts[size_t(p)]) << "position " << p;
        element = former;
      }
    }
    EXPECT_EQ(run.again(1, ids), expected);
  }
}

TEST(SimModel, AWrongPageSlotOrPositionChangesTheAnswer) {
  SimModelRun run(SimReadback::kAll);
  const std::vector<int32_t> ids(40, 7);  // all equal: only the positions tell pages apart
  const std::vector<float> expected = run.step(1, ids, 0);
  EXPECT_NE(run.step(1, ids, 1), expected);
  run.step(1, ids, 0);
  std::swap(run.page(1, 3), run.page(1, 4));
  EXPECT_NE(run.again(1, ids), expected);
  std::swap(run.page(1, 3), run.page(1, 4));
  EXPECT_EQ(run.again(1, ids), expected);
  const int32_t page = std::exchange(run.page(1, 2), 0);
  EXPECT_NE(run.again(1, ids), expected);
  run.page(1, 2) = page;
  EXPECT_NE(run.again(2, ids), expected);
}

TEST(SimLogits, ASampleIsSpreadAndEndsWithTheTail) {
  for (int32_t n = 1; n < 3000; n += n < 100 ? 1 : 97) {
    std::vector<int32_t> all, sample;
    const auto collect = [n](SimReadback readback, std::vector<int32_t>& to) {
      for_each_sim_range(n, readback, [&](int32_t b, int32_t e) {
        for (int32_t p = b; p < e; ++p) to.push_back(p);
      });
    };
    collect(SimReadback::kAll, all);
    collect(SimReadback::kSample, sample);
    ASSERT_EQ(all.size(), size_t(n));
    EXPECT_EQ(sample.size(), size_t(std::min(n, 32)));
    EXPECT_EQ(sample.front(), 0);
    for (int32_t i = 0; i < std::min(n, 16); ++i) EXPECT_EQ(sample[sample.size() - 1 - size_t(i)], n - 1 - i);
    if (n >= 32) {
      EXPECT_EQ(sample[8], n / 2);
    }
  }
}

// Answers must be worth comparing: every token comes up, and a draw is not a foregone conclusion.
TEST(SimLogits, AreVaried) {
  constexpr int32_t kVocab = 256, kContexts = 16 * kVocab;
  std::vector<int> argmax(kVocab);
  double largest_share = 0;
  for (int32_t i = 0; i < kContexts; ++i) {
    const std::vector<float> logits = sim_logits(random_ids(20, uint32_t(i)), kVocab, SimReadback::kAll);
    const auto best = std::max_element(logits.begin(), logits.end());
    ++argmax[size_t(best - logits.begin())];
    double sum = 0;
    for (const float x : logits) {
      ASSERT_GE(x, 0.f);
      ASSERT_LT(x, 16.f);
      sum += std::exp(double(x - *best));
    }
    largest_share += 1 / sum;
  }
  EXPECT_GT(*std::min_element(argmax.begin(), argmax.end()), 0);
  EXPECT_LT(*std::max_element(argmax.begin(), argmax.end()), 16 * 4);
  EXPECT_LT(largest_share / kContexts, 0.2);
  // One id more, less or changed anywhere is another answer.
  std::set<uint64_t> hashes;
  std::vector<int32_t> ids(30, 5);
  hashes.insert(sim_hash(ids, SimReadback::kAll));
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<int32_t> changed = ids;
    ++changed[i];
    hashes.insert(sim_hash(changed, SimReadback::kAll));
    hashes.insert(sim_hash(std::span(ids).first(i), SimReadback::kAll));
  }
  EXPECT_EQ(hashes.size(), 61u);
}

TEST(SimModel, WorkIsTheSumOverSequences) {
  SimModel model = find_sim_profile("zero").value().model;
  model.weight_bytes = 1'000'000;
  model.matmul_params = 500;
  model.kv_bytes_per_token = 10;
  model.attention_flops = 3;
  int32_t n = 4;
  const int32_t slots[] = {1, 1, 1, 2}, positions[] = {4, 5, 6, 99};  // a chunk of three, and a decode row
  ForwardInputs in{};
  in.n_rows = &n;
  in.slots = slots;
  in.positions = positions;
  const OpWork work = sim_work(model, in);
  EXPECT_EQ(work.bytes, 1'000'000 + 10 * (7 + 100));
  EXPECT_EQ(work.flops, 2 * 500 * 4 + 3 * (5 + 6 + 7 + 100));
  n = 0;
  EXPECT_EQ(sim_work(model, in).bytes, 0);
}

TEST(SimFile, LoadsAsAModelWithADistinctVocabulary) {
  for (const std::string& name : sim_profile_names()) {
    const SimProfile profile = find_sim_profile(name).value();
    for (const int32_t vocab : {profile.model.vocab_size, kSimMinVocab, kSimMaxVocab}) {
      SimProfile other = profile;
      other.model.vocab_size = vocab;
      const std::vector<std::byte> bytes = sim_model_file(other);
      const GgufFile file = GgufFile::parse("sim:" + name, bytes).value();
      const auto tokens = file.metadata().get_strings("tokenizer.ggml.tokens").value();
      EXPECT_EQ(tokens.size(), size_t(vocab));
      EXPECT_EQ(std::set(tokens.begin(), tokens.end()).size(), tokens.size());
      if (vocab != profile.model.vocab_size) continue;
      const auto device = make_device("cpu", {.threads = 1}).value();
      const auto model = load_model(file, *device).value();
      EXPECT_EQ(model->config().architecture, "sim");
      EXPECT_EQ(model->config().vocab_size, vocab);
      EXPECT_EQ(model->config().context_length, profile.model.context_length);
    }
  }
}

TEST(SimFile, AnUnknownProfileIsAnError) {
  SimProfile profile = find_sim_profile("zero").value();
  profile.name = "abacus";
  const std::vector<std::byte> bytes = sim_model_file(profile);
  const GgufFile file = GgufFile::parse("file", bytes).value();
  const auto device = make_device("cpu", {.threads = 1}).value();
  const Status status = load_model(file, *device).status();
  EXPECT_NE(status.message().find("'abacus'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace gapless
