// `gapless bench kernels`: the table.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/bench_kernels.h"
#include "apps/cli.h"
#include "apps/progress.h"
#include "device/cpu/topology.h"
#include "kernels/isa.h"
#include "kernels/roof.h"

namespace gapless {

namespace {

// By name; CLI11 has checked it.
DType type_named(const std::string& name) {
  for (uint32_t type = 0;; type++)
    if (const DTypeInfo* info = dtype_info(type); info && name == info->name) return DType(type);
}

bool is_float(DType type) {
  return packed_layout_for(type) <= PackedLayout::kBF16;
}

std::vector<MatmulShape> all_shapes(const BenchKernelsArgs& args) {
  std::vector<MatmulShape> shapes;
  for (const std::string& name : args.types) {
    const DType type = type_named(name);
    for (size_t i = 0; i < args.n.size(); i++) {
      if (args.k[i] % dtype_info(uint32_t(type))->block != 0) continue;
      for (const int32_t m : args.m) shapes.push_back({type, m, args.n[i], args.k[i]});
    }
  }
  return shapes;
}

// An error for inputs that none of the types can have.
Status check_inputs(const BenchKernelsArgs& args) {
  if (args.n.size() != args.k.size())
    return Status::invalid("--n has {} values and --k has {}: the first of both are a shape, and so on",
                           args.n.size(), args.k.size());
  int32_t smallest = std::numeric_limits<int32_t>::max();  // of blocks: all are powers of two
  for (const std::string& name : args.types)
    smallest = std::min(smallest, int32_t(dtype_info(uint32_t(type_named(name)))->block));
  for (const int32_t k : args.k) {
    if (k % smallest == 0) continue;
    return Status::invalid("--k {}: {} can only have multiples of {}", k, fmt::join(args.types, ", "),
                           smallest);
  }
  return {};
}

std::vector<MatmulSpeed> measure_all(KernelBench& bench, const std::vector<MatmulShape>& shapes) {
  Progress progress(stderr, stderr_is_terminal(), Progress::kNoLines);
  std::vector<MatmulSpeed> speeds;
  for (const MatmulShape& s : shapes) {
    progress.show(
        fmt::format("{} of {}: {}", speeds.size() + 1, shapes.size(), dtype_info(uint32_t(s.type))->name));
    speeds.push_back(bench.measure(s));
  }
  return speeds;
}

void print_machine(const BenchKernelsArgs& args, int threads, const char* isa, const Roof& roof, double op) {
  if (args.json) {
    const nlohmann::ordered_json json{{"threads", threads},          {"isa", isa},
                                      {"int8_gops", roof.int8_gops}, {"f32_gflops", roof.f32_gflops},
                                      {"read_gbps", roof.read_gbps}, {"empty_op_us", 1e6 * op}};
    std::puts(json.dump().c_str());
    return;
  }
  fmt::print(
      "{} threads, {} kernels; this machine at most: int8 {:.0f} Gop/s, float {:.0f} GFLOP/s, memory {:.1f} "
      "GB/s; an empty op {:.2f} us\n",
      threads, isa, roof.int8_gops, roof.f32_gflops, roof.read_gbps, 1e6 * op);
  fmt::print("{:<5} {:>5} {:>7} {:>5} {:>10} {:>7} {:>7} {:>8} {:>7} {:>8}\n", "type", "m", "n", "k", "us",
             "GB/s", "of read", "Gop/s", "of peak", "error");
}

void print_row(const BenchKernelsArgs& args, const MatmulShape& s, const MatmulSpeed& speed,
               const Roof& roof) {
  const char* type = dtype_info(uint32_t(s.type))->name;
  const double gbps = speed.weight_bytes / speed.seconds / 1e9;
  const double gops = 2.0 * s.m * s.n * s.k / speed.seconds / 1e9;
  const double of_read = gbps / roof.read_gbps;
  const double of_peak = gops / (is_float(s.type) ? roof.f32_gflops : roof.int8_gops);
  if (args.json) {
    const nlohmann::ordered_json json{{"type", type},
                                      {"m", s.m},
                                      {"n", s.n},
                                      {"k", s.k},
                                      {"us", 1e6 * speed.seconds},
                                      {"gbps", gbps},
                                      {"of_read", of_read},
                                      {"gops", gops},
                                      {"of_peak", of_peak},
                                      {"error", speed.error}};
    std::puts(json.dump().c_str());
  } else {
    fmt::print("{:<5} {:5} {:7} {:5} {:10.1f} {:7.1f} {:5.0f} % {:8.0f} {:5.0f} % {:8.1e}\n", type, s.m, s.n,
               s.k, 1e6 * speed.seconds, gbps, 100 * of_read, gops, 100 * of_peak, speed.error);
  }
}

}  // namespace

int run_bench_kernels(const BenchKernelsArgs& args) {
  if (const Status status = check_inputs(args); !status.is_ok()) return fail(kExitUsage, status);
  const Result<Isa> isa = parse_isa(args.isa);
  if (!isa) return fail(kExitUsage, isa.status());
  const std::vector<MatmulShape> shapes = all_shapes(args);
  size_t largest = 0;
  for (const MatmulShape& s : shapes)
    largest = std::max(largest, packed_bytes(packed_layout_for(s.type), s.n, s.k));
  const int threads = args.threads > 0 ? args.threads : default_threads(SystemPaths{}).threads;
  OpTimer timer(threads);
  KernelBench bench(timer, *op_table(*isa));
  if (const Status status = bench.reserve(largest); !status.is_ok()) return fail(kExitRuntime, status);
  Roof roof = measure_roof(threads);
  const double empty_op = timer.empty_op();
  const std::vector<MatmulSpeed> speeds = measure_all(bench, shapes);
  // Whatever else ran for a moment made one of them too low, and the shares too high.
  roof = best_of(roof, measure_roof(threads));
  print_machine(args, threads, isa_name(*isa), roof, empty_op);
  for (size_t i = 0; i < shapes.size(); i++) print_row(args, shapes[i], speeds[i], roof);
  return kExitOk;
}

}  // namespace gapless
