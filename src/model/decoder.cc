#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <thread>

namespace gapless {
namespace {

// Packing is bound by memory bandwidth well before this many threads.
constexpr int kMaxLoadThreads = 8;

int load_threads(const LoadOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp(int(std::thread::hardware_concurrency()), 1, kMaxLoadThreads);
}

}  // namespace

Status DecoderModel::load(const GgufFile& file, Device& device, const LoadOptions& options) {
  ASSIGN_OR_RETURN(config_, read_model_config(file));
  ASSIGN_OR_RETURN(eps_,
                   ArchKeys(file, config_.architecture).get_positive("attention.layer_norm_rms_epsilon"));
  WeightPlan plan(file);
  RETURN_IF_ERROR(plan.matrix(embedding_, "token_embd.weight", config_.vocab_size, config_.dim));
  RETURN_IF_ERROR(plan.vector(output_norm_, "output_norm.weight", config_.dim));
  tied_ = !plan.has("output.weight");
  if (!tied_) RETURN_IF_ERROR(plan.matrix(head_, "output.weight", config_.vocab_size, config_.dim));
  RETURN_IF_ERROR(plan_layers(file, plan));
  RETURN_IF_ERROR(plan.check_all_used());
  ASSIGN_OR_RETURN(weights_, plan.load(device, load_threads(options)));
  if (tied_) head_ = embedding_;
  const std::string head_tensor = tied_ ? "token_embd.weight" : "output.weight";
  head_label_ = matmul_label(std::array{head_tensor}, head_.n, head_.k, file.find_tensor(head_tensor)->dtype);
  return load_ropes(device);
}

int32_t DecoderModel::add_rope(const RopeConfig& rope) {
  rope_configs_.push_back(rope);
  return int32_t(rope_configs_.size()) - 1;
}

Status DecoderModel::load_ropes(Device& device) {
  std::vector<double> all;
  for (const RopeConfig& rope : rope_configs_) {
    const std::vector<double> frequencies = rope.inverse_frequencies();
    all.insert(all.end(), frequencies.begin(), frequencies.end());
  }
  ASSIGN_OR_RETURN(frequencies_, device.allocate(all.size() * sizeof(double), MemoryKind::kDevice));
  auto* at = frequencies_.as<double>();
  std::copy(all.begin(), all.end(), at);
  for (const RopeConfig& rope : rope_configs_) {
    ropes_.push_back({at, rope.rotated / 2, int32_t(ropes_.size())});
    at += rope.rotated / 2;
  }
  return {};
}

Status DecoderModel::reserve(Device& device, int32_t max_rows) {
  std::vector<int32_t> halves;
  for (const RopeTable& rope : ropes_) halves.push_back(rope.half);
  return workspace_.reserve(device, config_, halves, max_rows);
}

Step DecoderModel::step(OpList& ops, const OpTable& table, const ForwardInputs& in, const KvView& kv) const {
  CHECK_LE(in.max_rows, workspace_.max_rows);
  return {ops, table, in, kv, config_, workspace_, eps_};
}

void DecoderModel::logits(OpList& ops, const OpTable& table, const ForwardInputs& in, int32_t begin,
                          int32_t cap, float* logits, int64_t ld) {
  CHECK_LE(cap, workspace_.max_rows);
  CHECK(ld >= head_.padded_n(), "rows of {} floats for {} logits", ld, head_.padded_n());
  const Rows rows{in.n_logit_rows, begin, cap};
  push_output_norm(ops, table, in, rows, head_.quantised());
  table.matmul(ops, {.rows = rows,
                     .x_f32 = workspace_.act_f32,
                     .ldx = workspace_.ld_act,
                     .x_q8 = workspace_.act_q8,
                     .w = head_,
                     .y = logits,
                     .ldy = ld,
                     .add = false,
                     .label = head_label_.c_str()});
}

HiddenStates DecoderModel::hidden_states(OpList& ops, const OpTable& table, const ForwardInputs& in) {
  CHECK_LE(in.max_rows, workspace_.max_rows);
  push_output_norm(ops, table, in, {in.n_logit_rows, 0, in.max_rows}, false);
  return {workspace_.act_f32, workspace_.ld_act};
}

void DecoderModel::push_output_norm(OpList& ops, const OpTable& table, const ForwardInputs& in,
                                    const Rows& rows, bool q8) {
  table.rms_norm(ops, {.rows = rows,
                       .gather = in.logit_rows,
                       .x = workspace_.x,
                       .ldx = workspace_.ld_x,
                       .weight = output_norm_,
                       .eps = eps_,
                       .out = {.f32 = q8 ? nullptr : workspace_.act_f32,
                               .ld = workspace_.ld_act,
                               .q8 = q8 ? workspace_.act_q8 : nullptr,
                               .dim = config_.dim},
                       .residual = nullptr,
                       .ld_residual = 0});
}

}  // namespace gapless
