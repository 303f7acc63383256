#include "apps/bench_overlap.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/cli.h"
#include "apps/steady_load.h"

namespace gapless {

namespace {

using namespace std::chrono_literals;

constexpr double kSliceSeconds = 1;
// Prefill of everything at the start is over by then, or something is wrong.
constexpr double kFillSeconds = 600;

// Some places are always empty for a moment, between one request's end and the next one's begin.
constexpr double kFull = 0.9;

class OverlapBench {
 public:
  OverlapBench(const BenchOverlapArgs& args, Engine& engine, Progress& progress)
      : args_(args), engine_(engine), progress_(progress) {}

  Result<OverlapReport> run() {
    progress_.show("filling the engine");
    RETURN_IF_ERROR(fill_tree());
    ASSIGN_OR_RETURN(load_, start_load());
    RETURN_IF_ERROR(wait_until_full());
    // Not measured: caches, pages of memory and the clocks of the cores settle.
    RETURN_IF_ERROR(slice(EventLoop::kNormal).status());
    RETURN_IF_ERROR(slice(EventLoop::kOverlap).status());
    const auto* sim = dynamic_cast<const SimDevice*>(engine_.parts().device.get());
    const SimDevice::Stats before = sim ? sim->stats() : SimDevice::Stats{};
    for (int i = 0; i < args_.pairs; ++i) {
      progress_.show(fmt::format("pair {} of {}", i + 1, args_.pairs));
      RETURN_IF_ERROR(pair(i % 2 == 0));
    }
    ASSIGN_OR_RETURN(OverlapReport report, overlap_report(normal_, overlap_));
    if (sim) {
      const SimDevice::Stats after = sim->stats();
      report.sim_overrun = double(after.overruns - before.overruns) / double(after.steps - before.steps);
    }
    return report;
  }

 private:
  LoadShape shape() const {
    return {.open = args_.batch + args_.queued,
            .prompt_tokens = args_.prompt_len,
            .decode_tokens = args_.decode_len,
            .logprobs = args_.logprobs,
            .penalties = args_.penalties};
  }
  Result<std::unique_ptr<SteadyLoad>> start_load() {
    if (args_.sink == "http") return http_load(engine_, shape(), args_.seed);
    return inproc_load(engine_, shape(), args_.seed);
  }
  Status wait_until_full() {
    return wait_for([this] {
      const SchedulerStats s = engine_.scheduler().stats();
      return double(s.running) >= kFull * args_.batch &&
             double(s.running + s.queued) >= kFull * (args_.batch + args_.queued);
    });
  }
  // Prompts of which one token each is generated, until so many are cached.
  Status fill_tree() {
    if (args_.tree_tokens == 0) return {};
    const LoadShape shape{.open = args_.batch, .prompt_tokens = args_.prompt_len, .decode_tokens = 1};
    load_ = inproc_load(engine_, shape, ~args_.seed);
    RETURN_IF_ERROR(
        wait_for([this] { return engine_.scheduler().stats().kv_cached_tokens >= args_.tree_tokens; }));
    load_.reset();
    return {};
  }
  Status wait_for(const std::function<bool()>& reached) {
    const double begin = steady_seconds();
    while (!reached()) {
      RETURN_IF_ERROR(load_->error());
      if (steady_seconds() - begin > kFillSeconds) {
        const SchedulerStats s = engine_.scheduler().stats();
        return Status::internal(
            "after {:.0f} s only {} requests run, {} wait and {} of {} tokens of the KV cache hold prefixes: "
            "is --max-total-tokens too small?",
            kFillSeconds, s.running, s.queued, s.kv_cached_tokens, s.kv_total_tokens);
      }
      std::this_thread::sleep_for(2ms);
    }
    return {};
  }

  Status pair(bool normal_first) {
    for (const bool normal : {normal_first, !normal_first}) {
      ASSIGN_OR_RETURN(LoopSlice measured, slice(normal ? EventLoop::kNormal : EventLoop::kOverlap));
      (normal ? normal_ : overlap_).push_back(std::move(measured));
    }
    return {};
  }
  Result<LoopSlice> slice(EventLoop loop) {
    ASSIGN_OR_RETURN(LoopSlice out, run_slice(engine_, loop, args_.slice_seconds));
    RETURN_IF_ERROR(load_->error());
    return out;
  }

  const BenchOverlapArgs& args_;
  Engine& engine_;
  Progress& progress_;
  std::unique_ptr<SteadyLoad> load_;
  std::vector<LoopSlice> normal_, overlap_;
};

Result<EngineOptions> options_of(const BenchOverlapArgs& args) {
  ASSIGN_OR_RETURN(EngineOptions options, engine_options(args.engine));
  options.scheduler.max_running_requests = args.batch;
  options.scheduler.max_queued_requests =
      std::max(options.scheduler.max_queued_requests, args.queued + 2 * args.batch);
  return options;
}

// Progress is gone before the report is printed.
template <class Measure>
auto with_progress(const Measure& measure) {
  Progress progress(stderr, stderr_is_terminal(), Progress::kNoLines);
  return measure(progress);
}

// Prints the report. An error: it was measured, but it says nothing.
Status compare(const BenchOverlapArgs& args, Engine& engine) {
  ASSIGN_OR_RETURN(const OverlapReport report, with_progress([&](Progress& progress) {
                     return OverlapBench(args, engine, progress).run();
                   }));
  std::fputs((args.json ? overlap_json(args, report) : overlap_text(args, report)).c_str(), stdout);
  if (report.is_void())
    return Status::internal(
        "void: {:.2f} % of the steps took this machine longer than the simulated one (at most {:.1f} %): "
        "it is too busy or too slow for the profile",
        100 * *report.sim_overrun, 100 * kMaxSimOverrun);
  return {};
}

Status compare_first_tokens(const BenchOverlapArgs& args, Engine& engine) {
  ASSIGN_OR_RETURN(const PoissonReport report, with_progress([&](Progress& progress) {
                     return measure_poisson(args, engine, progress);
                   }));
  std::fputs((args.json ? poisson_json(args, report) : poisson_text(report)).c_str(), stdout);
  return {};
}

}  // namespace

int run_bench_overlap(const BenchOverlapArgs& given) {
  BenchOverlapArgs args = given;
  if (!args.poisson.empty() && args.sink == "http")
    return fail(kExitUsage, Status::invalid("--poisson measures in this process: without --sink http"));
  if (const Status status = check_runs_both_loops(args.engine); !status.is_ok())
    return fail(kExitUsage, status);
  if (args.slice_seconds == 0 && args.poisson.empty()) args.slice_seconds = kSliceSeconds;
  Result<EngineOptions> options = options_of(args);
  if (!options) return fail(kExitUsage, options.status());
  if (const Status status = check_trace_output(args.trace); !status.is_ok())
    return fail(kExitRuntime, status);
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return fail(exit_code_of(engine.status()), engine.status());
  Status status = args.poisson.empty() ? compare(args, **engine) : compare_first_tokens(args, **engine);
  // Of a void run too: it shows why.
  const Status written = args.trace.empty() ? Status() : write_trace((*engine)->tracer(), args.trace);
  if (status.is_ok()) status = written;
  return status.is_ok() ? kExitOk : fail(kExitRuntime, status);
}

}  // namespace gapless
