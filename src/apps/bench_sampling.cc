// `gapless bench sampling`: what choosing the next tokens costs, without a model.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli.h"
#include "apps/sampling_load.h"
#include "device/cpu/topology.h"
#include "device/registry.h"
#include "kernels/roof.h"

namespace gapless {
namespace {

void print_row(const BenchSamplingArgs& args, const SamplingLoad& load, double seconds, double read_gbps) {
  const double us = seconds * 1e6, gbps = 4e-9 * load.rows * load.vocab / seconds;
  if (args.json) {
    const nlohmann::ordered_json json{{"kind", load.kind},
                                      {"vocab", load.vocab},
                                      {"rows", load.rows},
                                      {"us_per_step", us},
                                      {"us_per_row", us / load.rows},
                                      {"logits_gb_s", gbps},
                                      {"read_share", gbps / read_gbps}};
    std::puts(json.dump().c_str());
  } else {
    fmt::print("{:12} {:8} {:5} {:11.1f} {:10.2f} {:8.1f} {:8.0f} %\n", load.kind, load.vocab, load.rows, us,
               us / load.rows, gbps, 100 * gbps / read_gbps);
  }
  std::fflush(stdout);
}

}  // namespace

int run_bench_sampling(const BenchSamplingArgs& args) {
  const int threads = args.threads > 0 ? args.threads : default_threads(SystemPaths{}).threads;
  Result<std::unique_ptr<Device>> device = make_device("cpu", {.threads = threads});
  if (!device) return fail(kExitRuntime, device.status());
  const double read_gbps = measure_roof(threads).read_gbps;
  if (!args.json) {
    fmt::print("{} threads; reading memory: {:.1f} GB/s\n", threads, read_gbps);
    fmt::print("{:12} {:>8} {:>5} {:>11} {:>10} {:>8} {:>10}\n", "kind", "vocab", "rows", "us per step",
               "us per row", "GB/s", "of reading");
  }
  const std::unique_ptr<Stream> stream = (*device)->create_stream();
  for (const int32_t vocab : args.vocab_sizes) {
    for (const std::string& kind : args.kinds) {
      for (const int32_t rows : args.rows) {
        const SamplingLoad load{kind, vocab, rows};
        const Result<double> seconds = measure_sampling(**device, *stream, load);
        if (!seconds) return fail(kExitRuntime, seconds.status());
        print_row(args, load, *seconds, read_gbps);
      }
    }
  }
  return kExitOk;
}

}  // namespace gapless
