// `gapless bench`: speed of prefill and decode without the network, over the real engine: the scheduler, the
// sampler and the text path are in the figures.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/answer_queue.h"
#include "apps/banner.h"
#include "apps/cli.h"
#include "apps/progress.h"
#include "apps/roof_share.h"
#include "apps/steady_load.h"
#include "apps/timing_sink.h"
#include "apps/trace_file.h"
#include "engine/engine.h"

namespace gapless {

namespace {

struct BenchRow {
  int batch, prompt;
  double prefill_tok_s = 0, decode_tok_s = 0, ttft_ms = 0, itl_ms = 0;
  double prefill_roof = 0, decode_roof = 0;  // shares
  std::vector<StepTotals> ops = {};
};

class Bench {
 public:
  Bench(const BenchArgs& args, Engine& engine)
      : args_(args), engine_(engine), random_prompts_(*engine.parts().tokenizer, 1) {}

  // Once over the KV memory that the largest row needs: the first touch of a page costs time, which the first
  // rows alone would pay. Every row gets the same pages, because the cache is emptied before it.
  Status warm_up() {
    const int batch = *std::max_element(args_.batch_sizes.begin(), args_.batch_sizes.end()),
              prompt = *std::max_element(args_.prompt_lengths.begin(), args_.prompt_lengths.end());
    return generate(make_prompts(batch, prompt + args_.decode_tokens - 1), 1).status();
  }

  Result<BenchRow> measure(int batch, int prompt) {
    BenchRow row{batch, prompt};
    (void)flush_cache_and_wait(engine_);
    const std::vector<std::vector<int32_t>> prompts = make_prompts(batch, prompt);
    // Prefill alone: one token each, and nothing of these prompts in the cache yet.
    ASSIGN_OR_RETURN(const std::vector<Timing> first, generate(prompts, 1));
    double end = 0, ttft = 0;
    for (const Timing& t : first) end = std::max(end, t.first), ttft += t.first - begin_;
    row.prefill_tok_s = double(batch) * prompt / (end - begin_);
    row.ttft_ms = 1e3 * ttft / batch;
    // Decode: the prompts are cached now. Each request's own pace, which has nothing of the prefill in it.
    ASSIGN_OR_RETURN(const std::vector<Timing> rest, generate(prompts, args_.decode_tokens));
    double itl = 0;
    for (const Timing& t : rest) itl += (t.last - t.first) / std::max(1, t.tokens - 1) / batch;
    row.itl_ms = 1e3 * itl;
    row.decode_tok_s = batch / itl;
    RETURN_IF_ERROR(profile(row));
    return row;
  }

 private:
  // The same once more, op by op: measuring costs a little, which is not to be in the figures above.
  Status profile(BenchRow& row) {
    ModelRunner& runner = *engine_.parts().runner;
    if (!runner.set_profile(&profile_)) return {};
    (void)flush_cache_and_wait(engine_);
    const Result<std::vector<Timing>> timings =
        generate(make_prompts(row.batch, row.prompt), std::min(args_.decode_tokens, kProfiledTokens));
    runner.set_profile(nullptr);
    runner.synchronize();
    row.ops = profile_.totals();
    profile_.reset();
    return timings.is_ok() ? Status() : timings.status();
  }

  static constexpr int32_t kProfiledTokens = 32;

  std::vector<std::vector<int32_t>> make_prompts(int batch, int length) {
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < batch; i++) prompts.push_back(random_prompts_.next(length));
    return prompts;
  }

  Result<std::vector<Timing>> generate(const std::vector<std::vector<int32_t>>& prompts, int max_tokens) {
    std::vector<std::shared_ptr<TimingSink>> sinks;
    begin_ = steady_seconds();
    for (const auto& prompt : prompts) {
      sinks.push_back(std::make_shared<TimingSink>());
      engine_.submit(shaped_request({}, prompt, max_tokens), sinks.back());
    }
    std::vector<Timing> timings;
    for (const auto& sink : sinks) {
      timings.push_back(sink->wait());
      RETURN_IF_ERROR(timings.back().error);
    }
    return timings;
  }

  const BenchArgs& args_;
  Engine& engine_;
  RandomPrompts random_prompts_;
  OpProfile profile_;
  double begin_ = 0;
};

// The pace of fewer tokens is mostly that of the first ones, which come while other prompts are computed.
constexpr int32_t kFewestDecodeTokens = 8;

void print(const BenchArgs& args, const BenchRow& row, const Roof& roof) {
  const bool decoded = args.decode_tokens >= kFewestDecodeTokens;
  if (args.json) {
    nlohmann::ordered_json json{{"batch", row.batch},
                                {"prompt_tokens", row.prompt},
                                {"prefill_tok_s", row.prefill_tok_s},
                                {"prefill_roof", row.prefill_roof},
                                {"ttft_ms", row.ttft_ms},
                                {"decode_tok_s", nullptr},
                                {"decode_roof", nullptr},
                                {"itl_ms", nullptr}};
    if (decoded)
      json.update(
          {{"decode_tok_s", row.decode_tok_s}, {"decode_roof", row.decode_roof}, {"itl_ms", row.itl_ms}});
    json["profile"] = nlohmann::json::parse(profile_json(row.ops, roof));
    std::puts(json.dump().c_str());
  } else {
    const auto shown = [&](const char* format, double value) {
      return decoded ? fmt::format(fmt::runtime(format), value) : "–";
    };
    fmt::print("{:6} {:7} {:14.0f} {:5.0f} % {:9.1f} {:>13} {:>7} {:>9}\n", row.batch, row.prompt,
               row.prefill_tok_s, 100 * row.prefill_roof, row.ttft_ms, shown("{:.1f}", row.decode_tok_s),
               shown("{:.0f} %", 100 * row.decode_roof), shown("{:.2f}", row.itl_ms));
  }
  std::fflush(stdout);
}

constexpr size_t kShownOps = 14;

void print_ops(const BenchRow& row, const Roof& roof) {
  fmt::print("\nbatch {}, prompts of {} tokens, op by op\n{}", row.batch, row.prompt,
             profile_text(row.ops, roof, kShownOps));
}

Result<RoofShare> roof_share(const BenchArgs& args, const Engine& engine) {
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(args.engine.model));
  ASSIGN_OR_RETURN(const ModelSummary summary, inspect_model(file));
  Roof roof;
  {
    Progress progress(stderr, stderr_is_terminal(), Progress::kNoLines);
    progress.show("measuring this machine");
    roof = measure_roof(engine.parts().threads.threads);
  }
  if (!args.json) {
    std::printf(
        "%d threads, %s kernels; this machine at most: int8 %.0f Gop/s, float %.0f GFLOP/s, memory %.1f "
        "GB/s\n",
        engine.parts().threads.threads, engine.parts().table->name, roof.int8_gops, roof.f32_gflops,
        roof.read_gbps);
    std::printf("%6s %7s %14s %7s %9s %13s %7s %9s\n", "batch", "prompt", "prefill tok/s", "of roof",
                "TTFT ms", "decode tok/s", "of roof", "ITL ms");
  }
  return RoofShare(summary, engine.parts().sizing.runner.kv_dtype, roof);
}

}  // namespace

int run_bench(const BenchArgs& args) {
  if (args.engine.model.empty())
    return fail(kExitUsage,
                Status::invalid("bench needs a FILE, or a subcommand: `bench serve`, `bench overlap`, "
                                "`bench kernels`, `bench attention` or `bench sampling`"));
  Result<EngineOptions> options = engine_options(args.engine);
  if (!options) return fail(kExitUsage, options.status());
  options->scheduler.max_running_requests =
      std::max(options->scheduler.max_running_requests,
               *std::max_element(args.batch_sizes.begin(), args.batch_sizes.end()));
  if (const Status status = check_trace_output(args.trace); !status.is_ok())
    return fail(kExitRuntime, status);
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return fail(exit_code_of(engine.status()), engine.status());
  const Result<RoofShare> share = roof_share(args, **engine);
  if (!share) return fail(kExitRuntime, share.status());
  Bench bench(args, **engine);
  if (const Status status = bench.warm_up(); !status.is_ok()) return fail(kExitRuntime, status);
  std::vector<BenchRow> rows;
  for (const int32_t prompt : args.prompt_lengths) {
    for (const int32_t batch : args.batch_sizes) {
      Result<BenchRow> row = bench.measure(batch, prompt);
      if (!row) return fail(kExitRuntime, row.status());
      row->prefill_roof = share->prefill(row->prefill_tok_s);
      row->decode_roof = share->decode(row->decode_tok_s, batch, prompt + args.decode_tokens / 2.0);
      print(args, *row, share->roof());
      rows.push_back(*std::move(row));
    }
  }
  if (!args.json) {  // all of them fill screens; --json has them
    print_ops(rows.front(), share->roof());
    if (rows.size() > 1) print_ops(rows.back(), share->roof());
  }
  if (args.trace.empty()) return kExitOk;
  const Status written = write_trace((*engine)->tracer(), args.trace);
  return written.is_ok() ? kExitOk : fail(kExitRuntime, written);
}

}  // namespace gapless
