// What bench overlap prints.
#include <nlohmann/json.hpp>

#include "apps/bench_overlap.h"

namespace gapless {

namespace {

using Json = nlohmann::ordered_json;

// Threads that take less than this per step are not shown.
constexpr double kShownCpuUs = 0.5;
constexpr const char* kHostThreads[] = {"scheduler", "forward"};

double cpu_of(const LoopFigures& f, const std::string& thread) {
  const auto it = f.cpu_us.find(thread);
  return it == f.cpu_us.end() ? 0 : it->second;
}
double host_cpu_us(const LoopFigures& f) {
  double sum = 0;
  for (const char* thread : kHostThreads) sum += cpu_of(f, thread);
  return sum;
}
double rows_per_step(const LoopFigures& f) {
  return double(f.tokens) / double(f.steps);
}

std::string line(const std::string& what, const std::string& normal, const std::string& overlap) {
  return fmt::format("  {:<42}{:>16}{:>16}\n", what, normal, overlap);
}
std::string steady_text(const LoopFigures& f, double value, const char* unit) {
  return f.steady.stretches == 0 ? "none" : fmt::format("{:.2f}{}", value, unit);
}

std::string loops_text(const LoopFigures& n, const LoopFigures& o) {
  const auto us = [](double value) { return fmt::format("{:.1f} us", value); };
  const auto percent = [](double share) { return fmt::format("{:.2f} %", 100 * share); };
  std::string out = line("", "normal", "overlap");
  out += line("tokens/s", fmt::format("{:.0f}", n.tokens_s), fmt::format("{:.0f}", o.tokens_s));
  out += line("tokens/s without gaps", fmt::format("{:.0f}", n.device_limited),
              fmt::format("{:.0f}", o.device_limited));
  out += line("device busy", percent(n.busy), percent(o.busy));
  out += line("  in steady decode", steady_text(n, 100 * n.steady.busy, " %"),
              steady_text(o, 100 * o.steady.busy, " %"));
  out += line("device step, mean", us(n.step_us), us(o.step_us));
  out += line("gap, mean", us(n.gap_us), us(o.gap_us));
  out += line("gap, p50", us(n.gaps.p50), us(o.gaps.p50));
  out += line("gap, p99", us(n.gaps.p99), us(o.gaps.p99));
  out += line("gap, longest", us(n.gaps.max), us(o.gaps.max));
  out += line("  in steady decode: p99", steady_text(n, n.steady.gaps.p99, " us"),
              steady_text(o, o.steady.gaps.p99, " us"));
  out += line("CPU per step, scheduler and forward", us(host_cpu_us(n)), us(host_cpu_us(o)));
  for (const auto& [name, time] : o.cpu_us)
    if (time >= kShownCpuUs) out += line("  " + name, us(cpu_of(n, name)), us(time));
  out += line("steps", std::to_string(n.steps), std::to_string(o.steps));
  out += line("tokens per step", fmt::format("{:.1f}", rows_per_step(n)),
              fmt::format("{:.1f}", rows_per_step(o)));
  out += line("rows computed in vain", std::to_string(n.wasted_rows), std::to_string(o.wasted_rows));
  out += line("recalls", std::to_string(n.recalls), std::to_string(o.recalls));
  out += line("memory stalls", std::to_string(n.memory_stalls), std::to_string(o.memory_stalls));
  out += line("retractions", std::to_string(n.retractions), std::to_string(o.retractions));
  return out;
}

Json interval_json(const RatioInterval& r) {
  Json json{{"ratio", r.ratio}, {"low", nullptr}, {"high", nullptr}, {"pairs", r.pairs}};
  if (r.has_interval()) json["low"] = r.low, json["high"] = r.high;
  return json;
}
std::string interval_text(const RatioInterval& r) {
  if (r.pairs == 0) return "unknown, as in no pair both loops did something";
  if (!r.has_interval()) return fmt::format("{:.4f} (1 pair)", r.ratio);
  return fmt::format(
      "{:.4f}, with 95 % confidence {:.4f} to {:.4f} (geometric mean of {} pairs, Student's t)", r.ratio,
      r.low, r.high, r.pairs);
}
Json lengths_json(const Lengths& l) {
  return {{"count", l.count}, {"mean", l.mean()}, {"p50", l.p50}, {"p99", l.p99}, {"max", l.max}};
}

Json loop_json(const LoopFigures& f) {
  Json json{{"tokens_s", f.tokens_s},
            {"device_limited_tokens_s", f.device_limited},
            {"busy", f.busy},
            {"step_us", f.step_us},
            {"gap_us", lengths_json(f.gaps)},
            {"steady_decode", nullptr},
            {"host_cpu_us_per_step", host_cpu_us(f)},
            {"cpu_us_per_step", f.cpu_us},
            {"steps", f.steps},
            {"tokens_per_step", rows_per_step(f)},
            {"wasted_rows", f.wasted_rows},
            {"recalls", f.recalls},
            {"memory_stalls", f.memory_stalls},
            {"retractions", f.retractions}};
  if (f.steady.stretches > 0)
    json["steady_decode"] = {
        {"steps", f.steady.steps}, {"busy", f.steady.busy}, {"gap_us", lengths_json(f.steady.gaps)}};
  return json;
}

Json workload_json(const BenchOverlapArgs& a) {
  return {{"device", a.engine.device},       {"batch", a.batch},         {"prompt_len", a.prompt_len},
          {"decode_len", a.decode_len},      {"queued", a.queued},       {"tree_tokens", a.tree_tokens},
          {"logprobs", a.logprobs},          {"penalties", a.penalties}, {"sink", a.sink},
          {"slice_seconds", a.slice_seconds}};
}

}  // namespace

std::string overlap_text(const BenchOverlapArgs& a, const OverlapReport& r) {
  std::string out = fmt::format(
      "{} running, {} waiting, {} tokens in, {} out, context {} on average, {} pair{} of {:g} s\n", a.batch,
      a.queued, a.prompt_len, a.decode_len, a.prompt_len + a.decode_len / 2, a.pairs, a.pairs == 1 ? "" : "s",
      a.slice_seconds);
  out += "the rows are totals and means of all slices of a loop\n";
  out += loops_text(r.normal, r.overlap);
  out += fmt::format("overlap / normal, tokens/s: {}\n", interval_text(r.ratio));
  out += fmt::format("  {}\n", r.is_void() ? "no conclusion: the run is void, see below"
                                           : conclusion(r.ratio, "overlap is faster", "overlap is slower"));
  out += fmt::format("  by the gaps of both it should be {:.4f}: {:+.2f} %\n", r.ratio_from_gaps,
                     100 * (r.ratio.ratio / r.ratio_from_gaps - 1));
  out += fmt::format("overlap reaches {:.4f} of the rate without gaps\n", r.of_device_limit);
  if (r.sim_overrun)
    out += fmt::format("simulated device: {:.3f} % of the steps took too long here (at most {:.1f} %){}\n",
                       100 * *r.sim_overrun, 100 * kMaxSimOverrun, r.is_void() ? ": VOID" : "");
  return out;
}

std::string overlap_json(const BenchOverlapArgs& args, const OverlapReport& r) {
  Json json{{"workload", workload_json(args)},      {"normal", loop_json(r.normal)},
            {"overlap", loop_json(r.overlap)},      {"overlap_over_normal", interval_json(r.ratio)},
            {"ratio_from_gaps", r.ratio_from_gaps}, {"of_device_limit", r.of_device_limit}};
  if (r.sim_overrun) {
    json["sim_overrun"] = *r.sim_overrun;
    json["void"] = r.is_void();
  }
  return json.dump() + "\n";
}

std::string poisson_text(const PoissonReport& r) {
  const auto row = [](const char* loop, const Lengths& l) {
    return fmt::format("  {:<10}{:>10.2f}{:>10.2f}{:>10.2f}{:>10}\n", loop, l.mean() / 1e3, l.p50 / 1e3,
                       l.p99 / 1e3, l.count);
  };
  return fmt::format("{:.2f} requests/s at random; time to first token, ms\n", r.rate) +
         fmt::format("  {:<10}{:>10}{:>10}{:>10}{:>10}\n", "", "mean", "p50", "p99", "requests") +
         row("normal", r.normal) + row("overlap", r.overlap) +
         fmt::format("overlap / normal of the runs' means: {}\n  {}\n", interval_text(r.ratio),
                     conclusion(r.ratio, "the first token comes later with overlap",
                                "the first token comes earlier with overlap"));
}

std::string poisson_json(const BenchOverlapArgs& args, const PoissonReport& r) {
  const Json json{{"workload", workload_json(args)},
                  {"rate", r.rate},
                  {"normal_ttft_us", lengths_json(r.normal)},
                  {"overlap_ttft_us", lengths_json(r.overlap)},
                  {"overlap_over_normal", interval_json(r.ratio)}};
  return json.dump() + "\n";
}

}  // namespace gapless
