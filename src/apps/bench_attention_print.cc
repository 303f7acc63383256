// `gapless bench attention`: the table.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench_attention.h"
#include "apps/cli.h"
#include "apps/progress.h"
#include "device/cpu/topology.h"
#include "kernels/isa.h"
#include "kernels/roof.h"

namespace gapless {

namespace {

// For each type and head shape: one row of each of m sequences at each context, then a prompt.
std::vector<AttentionShape> all_shapes(const BenchAttentionArgs& args) {
  std::vector<AttentionShape> shapes;
  for (size_t i = 0; i < args.heads.size(); i++)
    for (const KvDtype dtype : kKvDtypes) {
      if (std::ranges::count(args.types, kv_dtype_name(dtype)) == 0) continue;
      AttentionShape s{dtype, args.heads[i], args.kv_heads[i], args.head_dim[i], 1, 1, 1};
      for (const int32_t context : args.contexts)
        for (const int32_t m : args.m) {
          s.sequences = m, s.context = context;
          shapes.push_back(s);
        }
      s.sequences = 1;
      for (const int32_t prompt : args.prompts) {
        s.rows = s.context = prompt;
        shapes.push_back(s);
      }
    }
  return shapes;
}

Status check_heads(const BenchAttentionArgs& a) {
  if (a.heads.size() != a.kv_heads.size() || a.heads.size() != a.head_dim.size())
    return Status::invalid(
        "--heads has {} values, --kv-heads {} and --head-dim {}: the first of all three are a shape, and so "
        "on",
        a.heads.size(), a.kv_heads.size(), a.head_dim.size());
  for (size_t i = 0; i < a.heads.size(); i++) {
    const int32_t heads = a.heads[i], kv = a.kv_heads[i], dim = a.head_dim[i];
    if (heads % kv != 0 || heads / kv > 64 || dim % 16 != 0 || heads / kv * dim % 32 != 0)
      return Status::invalid(
          "--heads {} --kv-heads {} --head-dim {}: heads are a multiple of KV heads, at most 64 of each; "
          "head-dim is a multiple of 16, and of 32 with an odd number of heads on each KV head",
          heads, kv, dim);
  }
  return {};
}

std::vector<AttentionSpeed> measure_all(AttentionBench& bench, const std::vector<AttentionShape>& shapes) {
  Progress progress(stderr, stderr_is_terminal(), Progress::kNoLines);
  std::vector<AttentionSpeed> speeds;
  for (const AttentionShape& s : shapes) {
    progress.show(fmt::format("{} of {}", speeds.size() + 1, shapes.size()));
    speeds.push_back(bench.measure(s));
  }
  return speeds;
}

void print_machine(const BenchAttentionArgs& args, int threads, const char* isa, const Roof& roof,
                   double op) {
  if (args.json) {
    const nlohmann::ordered_json json{{"threads", threads},
                                      {"isa", isa},
                                      {"f32_gflops", roof.f32_gflops},
                                      {"read_gbps", roof.read_gbps},
                                      {"empty_op_us", 1e6 * op}};
    std::puts(json.dump().c_str());
    return;
  }
  fmt::print(
      "{} threads, {} kernels; this machine at most: float {:.0f} GFLOP/s, memory {:.1f} GB/s; an empty op "
      "{:.2f} us\n",
      threads, isa, roof.f32_gflops, roof.read_gbps, 1e6 * op);
  fmt::print("{:<5} {:>12} {:>9} {:>8} {:>10} {:>7} {:>7} {:>8} {:>7}\n", "kv", "heads x dim", "sequences",
             "rows", "context", "us", "GB/s", "of read", "GFLOP/s", "of peak");
}

void print_row(const BenchAttentionArgs& args, const AttentionShape& s, const AttentionSpeed& speed,
               const Roof& roof) {
  const double gbps = speed.work.bytes / speed.seconds / 1e9, gflops = speed.work.flops / speed.seconds / 1e9;
  if (args.json) {
    const nlohmann::ordered_json json{{"kv", kv_dtype_name(s.dtype)},
                                      {"heads", s.n_heads},
                                      {"kv_heads", s.n_kv_heads},
                                      {"head_dim", s.head_dim},
                                      {"sequences", s.sequences},
                                      {"rows", s.rows},
                                      {"context", s.context},
                                      {"us", 1e6 * speed.seconds},
                                      {"gbps", gbps},
                                      {"of_read", gbps / roof.read_gbps},
                                      {"gflops", gflops},
                                      {"of_peak", gflops / roof.f32_gflops}};
    std::puts(json.dump().c_str());
    return;
  }
  fmt::print("{:<5} {:>12} {:9} {:5} {:8} {:10.1f} {:7.1f} {:5.0f} % {:8.1f} {:5.0f} %\n",
             kv_dtype_name(s.dtype), fmt::format("{}/{} x {}", s.n_heads, s.n_kv_heads, s.head_dim),
             s.sequences, s.rows, s.context, 1e6 * speed.seconds, gbps, 100 * gbps / roof.read_gbps, gflops,
             100 * gflops / roof.f32_gflops);
}

}  // namespace

int run_bench_attention(const BenchAttentionArgs& args) {
  if (const Status status = check_heads(args); !status.is_ok()) return fail(kExitUsage, status);
  const Result<Isa> isa = parse_isa(args.isa);
  if (!isa) return fail(kExitUsage, isa.status());
  const std::vector<AttentionShape> shapes = all_shapes(args);
  const int threads = args.threads > 0 ? args.threads : default_threads(SystemPaths{}).threads;
  OpTimer timer(threads);
  AttentionBench bench(timer, *op_table(*isa), args.chunks);
  if (const Status status = bench.reserve(shapes); !status.is_ok()) return fail(kExitRuntime, status);
  Roof roof = measure_roof(threads);
  const double empty_op = timer.empty_op();
  const std::vector<AttentionSpeed> speeds = measure_all(bench, shapes);
  // Whatever else ran for a moment made one of them too low, and the shares too high.
  roof = best_of(roof, measure_roof(threads));
  print_machine(args, threads, isa_name(*isa), roof, empty_op);
  for (size_t i = 0; i < shapes.size(); i++) print_row(args, shapes[i], speeds[i], roof);
  return kExitOk;
}

}  // namespace gapless
