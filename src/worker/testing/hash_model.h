// A model for worker tests: its KV is the token ids themselves, its logits a hash of every id it reads back
// through the page table. So a wrong page, slot, position or placeholder changes the answer.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "model/model.h"

namespace gapless::testing {

inline constexpr int32_t kVocab = 512, kPageSize = 4;

// A few favourites, so that tokens occur again and penalties matter, and a noise that depends on everything.
inline void hash_logits(const std::vector<int32_t>& ids, float* logits) {
  uint32_t h = 2166136261u;
  for (int32_t id : ids) h = (h ^ uint32_t(id)) * 16777619u;
  for (int32_t id = 0; id < kVocab; id++) {
    const uint32_t x = (h ^ uint32_t(id) * 2654435769u) * 2246822519u;
    logits[id] = float(x >> 16) * (2.f / 65536) + (id % 64 == 9 ? 1.5f : 0.f);
  }
}
inline std::vector<float> hash_logits(const std::vector<int32_t>& ids) {
  std::vector<float> logits(kVocab);
  hash_logits(ids, logits.data());
  return logits;
}
inline int32_t next_token(const std::vector<int32_t>& ids) {
  const std::vector<float> logits = hash_logits(ids);
  return int32_t(std::ranges::max_element(logits) - logits.begin());
}

// Where a device op waits until a test lets it go on.
struct Gate {
  std::atomic<bool> entered{false}, open{false};
  void pass() {
    entered = true;
    wait_for(open);
  }
  void wait_until_entered() { wait_for(entered); }

 private:
  static void wait_for(const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

class HashModel : public Model {
 public:
  HashModel() {
    config_.architecture = "hash";
    config_.n_layers = config_.dim = config_.n_heads = config_.n_kv_heads = config_.head_dim = 1;
    config_.ffn_dim = 1;
    config_.vocab_size = kVocab;
    config_.context_length = 128;
  }
  const ModelConfig& config() const override { return config_; }
  Status reserve(Device&, int32_t) override { return {}; }

  void forward(OpList& ops, const OpTable&, const ForwardInputs& in, const KvView& kv) override {
    kv_ = kv;
    if (Gate* gate = std::exchange(gate_next, nullptr)) ops.push<one<Wait>, wait>("wait", Wait{gate});
    ops.push<one<Params>, write_kv>("write_kv", Params{in, kv, {}, nullptr, 0});
    if (std::exchange(fail_next, false)) ops.push<one<Failure>, fail>("fail", Failure{});
  }
  void logits(OpList& ops, const OpTable&, const ForwardInputs& in, int32_t begin, int32_t cap, float* logits,
              int64_t ld) override {
    // After the groups of rows before it have been sampled.
    if (fail_head == ++heads_) ops.push<one<Failure>, fail>("fail", Failure{});
    ops.push<one<Params>, read_back>("read_back", Params{in, kv_, {in.n_logit_rows, begin, cap}, logits, ld});
  }

  // What the next forward() does besides; set while nothing is launched, or by the thread that launches.
  bool fail_next = false;
  Gate* gate_next = nullptr;
  void fail_in_group(int32_t group) {  // of the next step, from 1
    heads_ = 0;
    fail_head = group;
  }
  // Any thread, while nothing is launched.
  int32_t kv(int32_t slot, int32_t position) const { return kv_at(kv_, slot, position); }

 private:
  struct Params {
    ForwardInputs in;
    KvView kv;
    Rows rows;
    float* logits;
    int64_t ld;
  };
  struct Failure {};
  struct Wait {
    Gate* gate;
  };
  template <class P>
  static int32_t one(const P&) {
    return 1;
  }
  static uint16_t& kv_at(const KvView& kv, int32_t slot, int32_t pos) {
    const int64_t page = kv.page_table[slot * kv.ld_page_table + pos / kPageSize];
    return reinterpret_cast<uint16_t*>(kv.k)[page * kPageSize + pos % kPageSize];
  }
  static void wait(const Wait& p, int32_t, OpContext&) { p.gate->pass(); }
  static void write_kv(const Params& p, int32_t, OpContext&) {
    for (int32_t r = 0; r < *p.in.n_rows; r++)
      kv_at(p.kv, p.in.slots[r], p.in.positions[r]) = uint16_t(p.in.ids[r]);
  }
  static void fail(const Failure&, int32_t, OpContext& c) { c.fail(Status::internal("injected")); }
  static void read_back(const Params& p, int32_t, OpContext&) {
    for (int32_t i = 0; i < p.rows.size(); i++) {
      const int32_t row = p.in.logit_rows[p.rows.begin + i];
      std::vector<int32_t> ids;
      for (int32_t pos = 0; pos <= p.in.positions[row]; pos++)
        ids.push_back(kv_at(p.kv, p.in.slots[row], pos));
      hash_logits(ids, p.logits + i * p.ld);
    }
  }
  ModelConfig config_;
  KvView kv_{};
  int32_t heads_ = 0, fail_head = 0;
};

}  // namespace gapless::testing
