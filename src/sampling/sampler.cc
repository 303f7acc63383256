#include "sampling/sampler.h"

#include <algorithm>

#include "sampling/sampler_ops.h"

namespace gapless {

struct Sampler::Impl {
  std::vector<int32_t> eos_ids;
  int32_t max_rows = 0;
  SamplerWork work{};
  Buffer memory;
};

namespace {

// Hands out 64-byte aligned pieces of one allocation; with a null base it only counts.
size_t carve(SamplerWork& w, int32_t max_rows, std::byte* base) {
  size_t used = 0;
  auto take = [&]<class T>(T*& p, size_t n) {
    p = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (n * sizeof(T) + 63) / 64 * 64;
  };
  const size_t rows = size_t(max_rows), blocks = rows * size_t(w.n_blocks);
  take(w.counts, 1);
  take(w.raw_rows, rows);
  take(w.sampled_rows, rows);
  take(w.raw, blocks);
  take(w.changed, blocks);
  take(w.group_max, blocks * kGroupsPerBlock);
  take(w.log_sum_exp, rows);
  return used;
}

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::create(Device& device, int32_t vocab_size,
                                                 std::vector<int32_t> eos_ids, int32_t max_rows) {
  CHECK(vocab_size > 0 && max_rows > 0, "vocabulary {}, rows {}", vocab_size, max_rows);
  CHECK(std::is_sorted(eos_ids.begin(), eos_ids.end()));
  auto impl = std::make_unique<Impl>();
  impl->eos_ids = std::move(eos_ids);
  impl->max_rows = max_rows;
  SamplerWork& w = impl->work;
  w.vocab = vocab_size;
  w.n_blocks = (vocab_size + kVocabBlock - 1) / kVocabBlock;
  w.math = &block_math();
  ASSIGN_OR_RETURN(impl->memory, device.allocate(carve(w, max_rows, nullptr), MemoryKind::kDevice));
  carve(w, max_rows, impl->memory.as<std::byte>());
  return std::unique_ptr<Sampler>(new Sampler(std::move(impl)));
}

Sampler::Sampler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sampler::~Sampler() = default;

SlotStatePtr Sampler::prepare(const SlotInit& init) const {
  return SlotStatePtr(new SlotState(init, impl_->work.vocab, impl_->eos_ids));
}

void Sampler::push(OpList& ops, const Params& params) {
  CHECK_LE(params.rows.cap, impl_->max_rows);
  push_sampler_ops(ops, {params, impl_->work});
}

const SamplingParams& Sampler::params_of(const SlotState& state) {
  return state.params();
}
std::span<const int32_t> Sampler::eos_ids() const {
  return impl_->eos_ids;
}
void SlotStateDeleter::operator()(SlotState* state) const {
  delete state;
}

}  // namespace gapless
