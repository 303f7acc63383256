#include "worker/model_worker_batch.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace gapless {
namespace {

// One visitor for both directions, so that a field cannot be written and not read.
class Writer {
 public:
  std::vector<std::byte> out;
  template <class T>
  void field(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  template <class T>
  void list(const std::vector<T>& values) {
    field(uint64_t(values.size()));
    for (const T& v : values) visit(*this, v);
  }
};

class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& in) : in_(in) {}
  template <class T>
  void field(T& value) {
    CHECK_LE(at_ + sizeof(T), in_.size());
    std::memcpy(&value, in_.data() + at_, sizeof(T));
    at_ += sizeof(T);
  }
  template <class T>
  void list(std::vector<T>& values) {
    uint64_t n = 0;
    field(n);
    CHECK_LE(n, in_.size() - at_);  // every element takes at least one byte
    values.resize(n);
    for (T& v : values) visit(*this, v);
  }
  bool at_end() const { return at_ == in_.size(); }

 private:
  const std::vector<std::byte>& in_;
  size_t at_ = 0;
};

template <class Archive>
void visit(Archive& a, auto& v) {
  using T = std::remove_cvref_t<decltype(v)>;
  if constexpr (std::is_same_v<T, SamplingParams>) {
    a.field(v.temperature), a.field(v.top_k), a.field(v.top_p), a.field(v.min_p);
    a.field(v.frequency_penalty), a.field(v.presence_penalty), a.field(v.repetition_penalty);
    a.field(v.seed), a.field(v.choice), a.field(v.max_tokens), a.field(v.min_tokens), a.field(v.ignore_eos);
    a.list(v.stop_token_ids), a.list(v.logit_bias), a.field(v.top_logprobs);
  } else if constexpr (std::is_same_v<T, SlotInit>) {
    a.field(v.slot), a.field(v.epoch), a.field(v.cached_tokens), visit(a, v.params), a.list(v.prompt_ids),
        a.list(v.output_ids);
  } else if constexpr (std::is_same_v<T, std::pair<int32_t, float>>) {
    a.field(v.first), a.field(v.second);
  } else if constexpr (std::is_same_v<T, ModelWorkerBatch>) {
    a.field(v.id), a.field(v.mode), a.list(v.rows), a.list(v.input_ids), a.list(v.prompt_targets);
    a.list(v.page_writes), a.list(v.slot_inits);
  } else {
    a.field(v);
  }
}

}  // namespace

const char* forward_mode_name(ForwardMode mode) {
  switch (mode) {
    case ForwardMode::kExtend:
      return "extend";
    case ForwardMode::kDecode:
      return "decode";
    case ForwardMode::kMixed:
      return "mixed";
    case ForwardMode::kIdle:
      return "idle";
  }
  return "?";
}

bool has_masked_rows(const ModelWorkerBatch& batch) {
  return std::ranges::any_of(batch.rows, &BatchRow::masked);
}

std::vector<std::byte> to_bytes(const ModelWorkerBatch& batch) {
  Writer writer;
  visit(writer, batch);
  return std::move(writer.out);
}

ModelWorkerBatch from_bytes(const std::vector<std::byte>& bytes) {
  ModelWorkerBatch batch;
  Reader reader(bytes);
  visit(reader, batch);
  CHECK(reader.at_end(), "trailing bytes in a batch of {}", bytes.size());
  return batch;
}

}  // namespace gapless
