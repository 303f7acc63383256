#include "model/sim/sim_model.h"

namespace gapless {
namespace {

// Elements of K and V of consecutive positions of a slot. The cache has one layer, one head, one element, of
// which this uses two bytes, whatever its type: a row of int8 has room for them beside its scale.
class PositionCursor {
 public:
  PositionCursor(const KvView& kv, int32_t slot, int32_t position)
      : kv_(kv),
        pages_(kv.page_table + slot * kv.ld_page_table + position / kv.page_size),
        offset_(position % kv.page_size) {}

  void next() {
    if (++offset_ < kv_.page_size) return;
    offset_ = 0;
    ++pages_;
  }
  uint16_t& k() const { return at(kv_.k); }
  uint16_t& v() const { return at(kv_.v); }

 private:
  uint16_t& at(std::byte* base) const {
    const int64_t page_bytes = int64_t(kv_.page_size) * kv_row_bytes(kv_.dtype, 1);
    return reinterpret_cast<uint16_t*>(base + *pages_ * page_bytes)[offset_];
  }

  const KvView& kv_;
  const int32_t* pages_;
  int32_t offset_;
};

struct ForwardParams {
  ForwardInputs in;
  KvView kv;
  SimModel model;
};

int32_t one_chunk(const ForwardParams&) {
  return 1;
}

OpWork write_work(const ForwardParams& p) {  // of the whole forward pass
  return sim_work(p.model, p.in);
}
void run_write(const ForwardParams& p, int32_t, OpContext&) {
  for (int32_t r = 0; r < *p.in.n_rows; ++r) {
    const PositionCursor at(p.kv, p.in.slots[r], p.in.positions[r]);
    at.k() = uint16_t(p.in.ids[r]);
    at.v() = uint16_t(p.in.positions[r]);
  }
}

// What is hashed for a position is its id only if K and V are this position's.
uint64_t hash_back(const KvView& kv, int32_t slot, int32_t n, SimReadback readback) {
  uint64_t hash = sim_seed(n);
  for_each_sim_range(n, readback, [&](int32_t begin, int32_t end) {
    PositionCursor at(kv, slot, begin);
    for (int32_t p = begin; p < end; ++p, at.next())
      hash = sim_mix(hash, uint64_t(at.k()) | uint64_t(uint16_t(at.v() ^ uint16_t(p))) << 16);
  });
  return hash;
}

// What a hash is spread over: logits, or a hidden state.
struct ReadParams {
  ForwardInputs in;
  KvView kv;
  SimReadback readback;
  Rows rows;
  int32_t width;
  float* out;
  int64_t ld;
};

int32_t chunk_per_row(const ReadParams& p) {
  return p.rows.size();
}
void run_read(const ReadParams& p, int32_t i, OpContext&) {
  const int32_t row = p.in.logit_rows[p.rows.begin + i];
  const uint64_t hash = hash_back(p.kv, p.in.slots[row], p.in.positions[row] + 1, p.readback);
  float* const out = p.out + i * p.ld;
  for (int32_t t = 0; t < p.width; ++t) out[t] = sim_logit(hash, t);
}

class SimulatedModel final : public Model {
 public:
  explicit SimulatedModel(const SimProfile& profile) : model_(profile.model) {
    CHECK(model_.vocab_size >= kSimMinVocab && model_.vocab_size <= kSimMaxVocab, "vocabulary {}",
          model_.vocab_size);
    config_.architecture = "sim";
    config_.name = profile.name;
    config_.n_layers = config_.dim = config_.n_heads = config_.n_kv_heads = config_.head_dim =
        config_.ffn_dim = 1;
    config_.vocab_size = model_.vocab_size;
    config_.embedding_dim = kSimEmbeddingDim;
    config_.context_length = model_.context_length;
    config_.max_kv_tokens = model_.max_kv_tokens;
    config_.n_params = model_.matmul_params;
    config_.quantisation = "none";
  }
  const ModelConfig& config() const override { return config_; }

  Status reserve(Device& device, int32_t max_rows) override {
    ASSIGN_OR_RETURN(
        hidden_, device.allocate(size_t(max_rows) * kSimEmbeddingDim * sizeof(float), MemoryKind::kDevice));
    return {};
  }

  void forward(OpList& ops, const OpTable&, const ForwardInputs& in, const KvView& kv) override {
    kv_ = kv;
    ops.push<one_chunk, run_write, write_work>("sim_write", ForwardParams{in, kv, model_});
  }

  void logits(OpList& ops, const OpTable&, const ForwardInputs& in, int32_t begin, int32_t cap, float* logits,
              int64_t ld) override {
    push_read(ops, "sim_logits", in, {in.n_logit_rows, begin, cap}, model_.vocab_size, logits, ld);
  }

  HiddenStates hidden_states(OpList& ops, const OpTable&, const ForwardInputs& in) override {
    push_read(ops, "sim_hidden", in, {in.n_logit_rows, 0, in.max_rows}, kSimEmbeddingDim, hidden_.as<float>(),
              kSimEmbeddingDim);
    return {hidden_.as<float>(), kSimEmbeddingDim};
  }

 private:
  void push_read(OpList& ops, const char* name, const ForwardInputs& in, const Rows& rows, int32_t width,
                 float* out, int64_t ld) {
    ops.push<chunk_per_row, run_read>(name, ReadParams{in, kv_, sim_readback(model_), rows, width, out, ld});
  }

  const SimModel model_;
  ModelConfig config_;
  KvView kv_{};  // of the step that is being planned
  Buffer hidden_;
};

}  // namespace

OpWork sim_work(const SimModel& model, const ForwardInputs& in) {
  const int32_t n = *in.n_rows;
  if (n == 0) return {};
  OpWork work{double(model.weight_bytes), 0};
  for (int32_t r = 0; r < n; ++r) {
    const double context = in.positions[r] + 1;
    const bool last_of_sequence = r + 1 == n || in.slots[r + 1] != in.slots[r];
    if (last_of_sequence) work.bytes += context * double(model.kv_bytes_per_token);
    work.flops += 2 * double(model.matmul_params) + context * double(model.attention_flops);
  }
  return work;
}

std::unique_ptr<Model> make_sim_model(const SimProfile& profile) {
  return std::make_unique<SimulatedModel>(profile);
}

Result<std::unique_ptr<Model>> load_sim(const GgufFile& file, Device&, const LoadOptions&) {
  ASSIGN_OR_RETURN(const std::string_view name, file.metadata().get_string("sim.profile"));
  const Result<SimProfile> profile = find_sim_profile(name);
  if (!profile) return Status::invalid("{}: {}", file.name(), profile.status().message());
  return make_sim_model(*profile);
}

}  // namespace gapless
