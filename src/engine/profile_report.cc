#include "engine/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/model_worker_batch.h"

namespace gapless {
namespace {

std::vector<OpTotals> by_time(const StepTotals& steps) {
  std::vector<OpTotals> ops = steps.ops;
  std::ranges::stable_sort(ops, std::greater(), &OpTotals::seconds);
  return ops;
}

const char* kind_name(const StepTotals& steps) {
  return forward_mode_name(ForwardMode(steps.kind));
}

// A number of a rate in its column, or nothing for none.
std::string rate(double per_second) {
  return per_second > 0 ? fmt::format("{:.1f}", per_second / 1e9) : "";
}

std::string op_line(const OpTotals& op, const StepTotals& steps, const Roof& roof) {
  const double calls = double(op.calls), n = double(steps.steps);
  const RoofUse use = roof_use(op, roof);
  return fmt::format("  {:38} {:7.1f} {:9.2f} {:9.1f} {:5.1f} % {:8.2f} {:>7} {:>8} {:>12}\n", op.label,
                     calls / n, 1e6 * op.seconds / calls, 1e6 * op.seconds / n,
                     100 * op.seconds / steps.seconds, op.work.bytes / calls / 1e6,
                     rate(op.work.bytes / op.seconds), rate((op.work.flops + op.work.int8_ops) / op.seconds),
                     use.share > 0 ? fmt::format("{:.0f} % {}", 100 * use.share, use.bound) : "");
}

std::string table(const StepTotals& steps, const Roof& roof, size_t max_ops) {
  const double n = double(steps.steps);
  std::string text =
      fmt::format("{} steps: {} of {:.1f} us with {:.1f} tokens, {:.1f} us between them\n", kind_name(steps),
                  steps.steps, 1e6 * steps.seconds / n, double(steps.rows) / n, 1e6 * steps.gaps / n);
  text += fmt::format("  {:38} {:>7} {:>9} {:>9} {:>7} {:>8} {:>7} {:>8} {:>12}\n", "op", "calls", "us/call",
                      "us/step", "share", "MB/call", "GB/s", "Gop/s", "of roof");
  const std::vector<OpTotals> ops = by_time(steps);
  OpTotals rest{.label = "", .calls = 0, .seconds = 0, .work = {}};
  for (size_t i = 0; i < ops.size(); i++) {
    if (i < max_ops) {
      text += op_line(ops[i], steps, roof);
      continue;
    }
    rest.calls += ops[i].calls;
    rest.seconds += ops[i].seconds;
  }
  if (rest.calls > 0) {
    rest.label = fmt::format("{} other ops", ops.size() - max_ops);
    text += op_line(rest, steps, roof);
  }
  return text;
}

}  // namespace

RoofUse roof_use(const OpTotals& op, const Roof& roof) {
  const double memory = op.work.bytes / (1e9 * roof.read_gbps);
  const double int8 = op.work.int8_ops / (1e9 * roof.int8_gops),
               floats = op.work.flops / (1e9 * roof.f32_gflops);
  const double least = std::max({memory, int8, floats});
  if (least <= 0 || op.seconds <= 0) return {};
  return {least / op.seconds, least == memory ? "memory" : least == int8 ? "int8" : "float"};
}

std::string profile_text(const std::vector<StepTotals>& steps, const Roof& roof, size_t max_ops) {
  std::string text =
      fmt::format("this machine at most: int8 {:.0f} Gop/s, float {:.0f} GFLOP/s, memory {:.1f} GB/s\n",
                  roof.int8_gops, roof.f32_gflops, roof.read_gbps);
  if (steps.empty()) text += "no step so far\n";
  for (const StepTotals& kind : steps) text += table(kind, roof, max_ops);
  return text;
}

std::string profile_json(const std::vector<StepTotals>& steps, const Roof& roof) {
  nlohmann::ordered_json json{
      {"roof",
       {{"int8_gops", roof.int8_gops}, {"f32_gflops", roof.f32_gflops}, {"read_gbps", roof.read_gbps}}},
      {"steps", nlohmann::ordered_json::array()}};
  for (const StepTotals& kind : steps) {
    nlohmann::ordered_json ops = nlohmann::ordered_json::array();
    for (const OpTotals& op : by_time(kind)) {
      const RoofUse use = roof_use(op, roof);
      ops.push_back({{"op", op.label},
                     {"calls", op.calls},
                     {"seconds", op.seconds},
                     {"bytes", op.work.bytes},
                     {"flops", op.work.flops},
                     {"int8_ops", op.work.int8_ops},
                     {"of_roof", use.share},
                     {"bound", use.bound}});
    }
    json["steps"].push_back({{"kind", kind_name(kind)},
                             {"steps", kind.steps},
                             {"tokens", kind.rows},
                             {"seconds", kind.seconds},
                             {"gap_seconds", kind.gaps},
                             {"ops", std::move(ops)}});
  }
  return json.dump();
}

}  // namespace gapless
