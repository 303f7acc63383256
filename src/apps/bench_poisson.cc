// Time to first token under random arrivals, both loops in turns.
#include <algorithm>
#include <chrono>
#include <thread>

#include "apps/bench_overlap.h"
#include "apps/steady_load.h"
#include "apps/timing_sink.h"
#include "apps/workload.h"

namespace gapless {

namespace {

constexpr double kRunSeconds = 10, kCapacitySeconds = 3;
constexpr double kFull = 0.9;  // of the places, before the capacity is measured

class PoissonBench {
 public:
  PoissonBench(const BenchOverlapArgs& args, Engine& engine, Progress& progress)
      : args_(args),
        engine_(engine),
        progress_(progress),
        seconds_(args.slice_seconds > 0 ? args.slice_seconds : kRunSeconds),
        shape_{.open = args.batch,
               .prompt_tokens = args.prompt_len,
               .decode_tokens = args.decode_len,
               .logprobs = args.logprobs,
               .penalties = args.penalties} {}

  Result<PoissonReport> run() {
    PoissonReport report;
    ASSIGN_OR_RETURN(report.rate, rate());
    std::vector<double> all[2], means[2];
    for (int i = 0; i < args_.pairs; ++i) {
      progress_.show(fmt::format("pair {} of {}", i + 1, args_.pairs));
      for (const bool overlap : {i % 2 == 1, i % 2 == 0}) {
        ASSIGN_OR_RETURN(const std::vector<double> ttft,
                         first_tokens(overlap ? EventLoop::kOverlap : EventLoop::kNormal, report.rate,
                                      args_.seed + uint64_t(i)));
        all[overlap].insert(all[overlap].end(), ttft.begin(), ttft.end());
        means[overlap].push_back(lengths_of(ttft).mean());
      }
    }
    report.normal = lengths_of(all[0]);
    report.overlap = lengths_of(all[1]);
    report.ratio = ratio_interval(means[0], means[1]);
    return report;
  }

 private:
  // Requests per second: as given, or half of what the normal loop does with all places taken.
  Result<double> rate() {
    if (args_.poisson != "half") return std::stod(args_.poisson);
    progress_.show("measuring what the normal loop can do");
    const std::unique_ptr<SteadyLoad> load = inproc_load(engine_, shape_, args_.seed);
    while (double(engine_.scheduler().stats().running) < kFull * args_.batch) {
      RETURN_IF_ERROR(load->error());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ASSIGN_OR_RETURN(const LoopSlice slice, run_slice(engine_, EventLoop::kNormal, kCapacitySeconds));
    RETURN_IF_ERROR(load->error());
    return slice.rate() / args_.decode_len / 2;
  }

  // Microseconds from each request's arrival. Both runs of a pair get the same requests at the same times,
  // and neither finds anything cached.
  Result<std::vector<double>> first_tokens(EventLoop loop, double rate, uint64_t seed) {
    if (flush_cache_and_wait(engine_) < 0 || !switch_loop_and_wait(engine_, loop))
      return Status::internal("the engine has stopped");
    RandomPrompts prompts(*engine_.parts().tokenizer, seed);
    const std::vector<double> arrivals = poisson_arrivals(std::max(1, int(rate * seconds_)), rate, seed);
    std::vector<std::shared_ptr<TimingSink>> sinks;
    std::vector<double> sent;
    const double begin = steady_seconds();
    for (const double arrival : arrivals) {
      GenerateRequest request = shaped_request(shape_, prompts.next(args_.prompt_len), args_.decode_len);
      std::this_thread::sleep_for(std::chrono::duration<double>(begin + arrival - steady_seconds()));
      sinks.push_back(std::make_shared<TimingSink>());
      sent.push_back(steady_seconds());
      engine_.submit(std::move(request), sinks.back());
    }
    std::vector<double> ttft;
    for (size_t i = 0; i < sinks.size(); ++i) {
      const Timing& timing = sinks[i]->wait();
      RETURN_IF_ERROR(timing.error);
      ttft.push_back(1e6 * (timing.first - sent[i]));
    }
    return ttft;
  }

  const BenchOverlapArgs& args_;
  Engine& engine_;
  Progress& progress_;
  const double seconds_;
  const LoadShape shape_;
};

}  // namespace

Result<PoissonReport> measure_poisson(const BenchOverlapArgs& args, Engine& engine, Progress& progress) {
  return PoissonBench(args, engine, progress).run();
}

}  // namespace gapless
