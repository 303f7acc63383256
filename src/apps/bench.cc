// `gapless bench`: speed of prefill and decode without the network, over the real engine: the scheduler, the
// sampler and the text path are in the figures.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/answer_queue.h"
#include "apps/banner.h"
#include "apps/cli.h"
#include "engine/engine.h"

namespace gapless {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// When the tokens of one request came.
struct Timing {
  double first = 0, last = 0;
  int tokens = 0;
  Status error;
};

// Notes times on the engine's thread, where the token arrives.
class TimingSink : public ResponseSink {
 public:
  void on_event(ResponseEvent event) override {
    if (const auto* delta = std::get_if<ChoiceDelta>(&event)) {
      const double now = seconds_now();
      if (timing_.tokens == 0 && !delta->tokens.empty()) timing_.first = now;
      timing_.tokens += int(delta->tokens.size());
      timing_.last = now;
      if (delta->finish && delta->finish->reason == FinishReason::kError)
        timing_.error = delta->finish->status;
    }
    if (auto* failed = std::get_if<Failed>(&event)) timing_.error = failed->status;
    const bool over = std::holds_alternative<Done>(event) || std::holds_alternative<Failed>(event);
    if (over) done_.set();
  }
  const Timing& wait() {
    (void)done_.wait();
    return timing_;
  }

 private:
  Timing timing_;
  HostEvent done_;
};

struct BenchRow {
  int batch, prompt;
  double prefill_tok_s = 0, decode_tok_s = 0, ttft_ms = 0, itl_ms = 0;
};

class Bench {
 public:
  Bench(const BenchArgs& args, Engine& engine) : args_(args), engine_(engine), random_(1) {}

  Result<BenchRow> measure(int batch, int prompt) {
    BenchRow row{batch, prompt};
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
    return row;
  }

 private:
  std::vector<std::vector<int32_t>> make_prompts(int batch, int length) {
    std::uniform_int_distribution<int32_t> id(0, engine_.model().vocab_size - 1);
    std::vector<std::vector<int32_t>> prompts(batch);
    for (auto& prompt : prompts) {
      while (int(prompt.size()) < length) {
        const int32_t candidate = id(random_);
        if (!engine_.parts().tokenizer->is_control(candidate)) prompt.push_back(candidate);
      }
    }
    return prompts;
  }

  Result<std::vector<Timing>> generate(const std::vector<std::vector<int32_t>>& prompts, int max_tokens) {
    std::vector<std::shared_ptr<TimingSink>> sinks;
    begin_ = seconds_now();
    for (const auto& prompt : prompts) {
      GenerateRequest request;
      request.prompt = prompt;
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.max_tokens = max_tokens;
      sinks.push_back(std::make_shared<TimingSink>());
      engine_.submit(std::move(request), sinks.back());
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
  std::mt19937_64 random_;
  double begin_ = 0;
};

void print(const BenchArgs& args, const BenchRow& row) {
  if (args.json) {
    const nlohmann::ordered_json json{{"batch", row.batch},
                                      {"prompt_tokens", row.prompt},
                                      {"prefill_tok_s", row.prefill_tok_s},
                                      {"decode_tok_s", row.decode_tok_s},
                                      {"ttft_ms", row.ttft_ms},
                                      {"itl_ms", row.itl_ms}};
    std::puts(json.dump().c_str());
  } else {
    std::printf("%6d %8d %14.0f %10.1f %13.1f %10.2f\n", row.batch, row.prompt, row.prefill_tok_s,
                row.ttft_ms, row.decode_tok_s, row.itl_ms);
  }
  std::fflush(stdout);
}

}  // namespace

int run_bench(const BenchArgs& args) {
  if (args.engine.model.empty())
    return fail(kExitUsage, Status::invalid("bench needs a FILE, or the subcommand `bench serve`"));
  Result<EngineOptions> options = engine_options(args.engine);
  if (!options) return fail(kExitUsage, options.status());
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return fail(kExitRuntime, engine.status());
  Bench bench(args, **engine);
  if (!args.json)
    std::printf("%6s %8s %14s %10s %13s %10s\n", "batch", "prompt", "prefill tok/s", "TTFT ms",
                "decode tok/s", "ITL ms");
  for (const int32_t prompt : args.prompt_lengths) {
    for (const int32_t batch : args.batch_sizes) {
      const Result<BenchRow> row = bench.measure(batch, prompt);
      if (!row) return fail(kExitRuntime, row.status());
      print(args, *row);
    }
  }
  return kExitOk;
}

}  // namespace gapless
