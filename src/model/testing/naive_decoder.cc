#include "model/testing/naive_decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numbers>
#include <string>

namespace gapless::testing {
namespace {

using Row = std::vector<double>;

class NaiveDecoder {
 public:
  explicit NaiveDecoder(const GgufFile& file) : file_(file) {
    gemma_ = *file.metadata().get_string("general.architecture") == "gemma3";
    layers_ = int(*u32("block_count"));
    dim_ = *u32("embedding_length");
    heads_ = *u32("attention.head_count");
    kv_heads_ = *u32("attention.head_count_kv");
    head_dim_ = *u32("attention.key_length");
    eps_ = *file.metadata().get_f32(key("attention.layer_norm_rms_epsilon"));
    base_ = *file.metadata().get_f32(key("rope.freq_base"));
    scaling_ = *file.metadata().get_f32(key("rope.scaling.factor"), 1);
    if (gemma_) {
      window_ = *u32("attention.sliding_window");
      pattern_ = int(*u32("attention.sliding_window_pattern"));
    }
  }

  std::vector<Row> hidden(std::span<const int32_t> ids) {
    std::vector<Row> x;
    for (const int32_t id : ids) {
      Row e = embedding(id);
      if (gemma_) {
        for (double& value : e) value *= std::sqrt(double(dim_));
      }
      x.push_back(e);
    }
    for (int l = 0; l < layers_; ++l) layer(l, x);
    for (Row& row : x) row = norm(row, "output_norm.weight");
    return x;
  }

  std::vector<Row> logits(std::span<const int32_t> ids) {
    std::vector<Row> out = hidden(ids);
    const std::string head = file_.find_tensor("output.weight") ? "output.weight" : "token_embd.weight";
    for (Row& row : out) row = times(head, row);
    return out;
  }

 private:
  std::string key(const std::string& name) const { return (gemma_ ? "gemma3." : "llama.") + name; }
  Result<uint32_t> u32(const std::string& name) const { return file_.metadata().get_u32(key(name)); }

  const std::vector<float>& weight(const std::string& name) {
    std::vector<float>& values = weights_[name];
    if (values.empty()) {
      const GgufTensor* tensor = file_.find_tensor(name);
      CHECK(tensor, "{}", name);
      values.resize(size_t(tensor->elements()));
      dequantise(tensor->dtype, tensor->data.data(), tensor->elements(), values.data());
    }
    return values;
  }

  Row embedding(int32_t id) {
    const auto begin = weight("token_embd.weight").begin() + int64_t(id) * int64_t(dim_);
    return Row(begin, begin + int64_t(dim_));
  }

  Row times(const std::string& name, const Row& x) {
    const std::vector<float>& w = weight(name);
    Row y(w.size() / x.size(), 0);
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t k = 0; k < x.size(); ++k) y[i] += double(w[i * x.size() + k]) * x[k];
    }
    return y;
  }

  Row norm(const Row& x, const std::string& name) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double r = 1 / std::sqrt(sum / double(x.size()) + eps_);
    Row y = x;
    for (size_t i = 0; i < x.size(); ++i) y[i] *= r * double(weight(name)[i]);
    return y;
  }

  // Head h of a row of heads: normed (Gemma), then rotated by the position.
  Row head(const Row& all, size_t h, size_t position, bool windowed, const std::string& norm_name) {
    Row x(all.begin() + int64_t(h * head_dim_), all.begin() + int64_t((h + 1) * head_dim_));
    if (gemma_) x = norm(x, norm_name);
    Row y = x;
    const size_t half = head_dim_ / 2;
    for (size_t j = 0; j < half; ++j) {
      double frequency =
          std::pow(windowed ? 10000.0 : base_, -double(j) / double(half)) / (windowed ? 1.0 : scaling_);
      if (file_.find_tensor("rope_freqs.weight")) frequency /= double(weight("rope_freqs.weight")[j]);
      const double angle = double(position) * frequency;
      const size_t a = gemma_ ? j : 2 * j, b = gemma_ ? j + half : 2 * j + 1;
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
    return y;
  }

  Row attend(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values, size_t first,
             size_t last) {
    Row scores, out(q.size(), 0);
    double total = 0;
    for (size_t j = first; j <= last; ++j) {
      double dot = 0;
      for (size_t d = 0; d < q.size(); ++d) dot += q[d] * keys[j][d];
      scores.push_back(std::exp(dot / std::sqrt(double(head_dim_))));
      total += scores.back();
    }
    for (size_t j = first; j <= last; ++j) {
      for (size_t d = 0; d < q.size(); ++d) out[d] += scores[j - first] / total * values[j][d];
    }
    return out;
  }

  void layer(int l, std::vector<Row>& x) {
    const std::string blk = fmt::format("blk.{}.", l);
    const bool windowed = gemma_ && l % pattern_ < pattern_ - 1;
    std::vector<std::vector<Row>> keys(kv_heads_), values(kv_heads_);
    for (size_t i = 0; i < x.size(); ++i) {
      const Row in = norm(x[i], blk + "attn_norm.weight");
      const Row q = times(blk + "attn_q.weight", in), k = times(blk + "attn_k.weight", in),
                v = times(blk + "attn_v.weight", in);
      for (size_t h = 0; h < kv_heads_; ++h) {
        keys[h].push_back(head(k, h, i, windowed, blk + "attn_k_norm.weight"));
        values[h].emplace_back(v.begin() + int64_t(h * head_dim_), v.begin() + int64_t((h + 1) * head_dim_));
      }
      const size_t first = windowed && i + 1 > window_ ? i + 1 - window_ : 0;
      Row joined;
      for (size_t h = 0; h < heads_; ++h) {
        const size_t group = h / (heads_ / kv_heads_);
        const Row o =
            attend(head(q, h, i, windowed, blk + "attn_q_norm.weight"), keys[group], values[group], first, i);
        joined.insert(joined.end(), o.begin(), o.end());
      }
      add(x[i], times(blk + "attn_output.weight", joined), blk + "post_attention_norm.weight");
      feed_forward(blk, x[i]);
    }
  }

  void feed_forward(const std::string& blk, Row& x) {
    const Row in = norm(x, blk + "ffn_norm.weight");
    Row gate = times(blk + "ffn_gate.weight", in);
    const Row up = times(blk + "ffn_up.weight", in);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double gelu =
          g / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
      gate[i] = (gemma_ ? gelu : g / (1 + std::exp(-g))) * up[i];
    }
    add(x, times(blk + "ffn_down.weight", gate), blk + "post_ffw_norm.weight");
  }

  void add(Row& x, const Row& y, const std::string& post_norm) {
    const Row delta = gemma_ ? norm(y, post_norm) : y;
    for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
  }

  const GgufFile& file_;
  std::map<std::string, std::vector<float>> weights_;
  bool gemma_ = false;
  int layers_ = 0, pattern_ = 0;
  size_t dim_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, window_ = 0;
  double eps_ = 0, base_ = 0, scaling_ = 1;
};

}  // namespace

std::vector<std::vector<double>> naive_logits(const GgufFile& file, std::span<const int32_t> ids) {
  return NaiveDecoder(file).logits(ids);
}

std::vector<std::vector<double>> naive_hidden(const GgufFile& file, std::span<const int32_t> ids) {
  return NaiveDecoder(file).hidden(ids);
}

}  // namespace gapless::testing
