// Flags of the commands that compare the two loops, and of those that measure the sampler and the kernels.
#include <fmt/ranges.h>

#include "apps/args.h"
#include "apps/sampling_load.h"

namespace gapless {

namespace {

// A number above 0, or the word.
CLI::Validator rate_or_half() {
  return CLI::Validator(
      [](std::string& text) {
        double rate = 0;
        if (text == "half" || (CLI::detail::lexical_cast(text, rate) && rate > 0)) return std::string();
        return "'" + text + "' is neither a number of requests per second nor half";
      },
      "", "rate");
}

void add_workload_flags(CLI::App& app, BenchOverlapArgs& a) {
  flag(app, "--batch", a.batch, "N", "", "Answers that run at the same time; sets --max-running-requests.")
      ->check(CLI::Range(1, 4096));
  flag(app, "--prompt-len", a.prompt_len, "N", "", "Prompt tokens of each request; no two prompts are alike.")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--decode-len", a.decode_len, "N", "",
       "Tokens generated for each request (end-of-text is ignored). As one ends, another begins.")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--queued", a.queued, "N", "", "Requests that wait behind those that run, all the time.")
      ->check(CLI::Range(0, 1 << 20));
  flag(app, "--tree-tokens", a.tree_tokens, "N", "",
       "Fill the prefix cache with so many tokens first; --max-total-tokens must leave room for them.")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32));
  flag(app, "--logprobs", a.logprobs, "N", "none",
       "Ask for logprobs: 0 of each token, N of the N most likely too.")
      ->check(CLI::Range(0, 20));
  toggle(app, "--penalties", a.penalties, "off",
         "Presence, frequency and repetition penalties in every request: the counts change with each token.");
  flag(app, "--sink", a.sink, "NAME", "",
       "Where tokens go: inproc (counted in this process) or http (streamed to a client over loopback).")
      ->check(one_of({"inproc", "http"}));
}

// What the benchmarks of kernels have in common.
template <class Args>
void add_kernel_flags(CLI::App& app, Args& a) {
  flag(app, "--threads", a.threads, "N", "physical cores", "Compute threads, as in serve.")
      ->check(CLI::Range(0, 1024));
  flag(app, "--isa", a.isa, "NAME", "", "Instruction set of the kernels, as in serve.")
      ->check(one_of({"auto", "avx512", "avx2", "neon", "reference"}));
  toggle(app, "--json", a.json, "off",
         "One JSON object per row instead of a table; the first is the machine.");
}

}  // namespace

Status check_runs_both_loops(const EngineArgs& a) {
  if (!a.disable_overlap_schedule) return {};
  return Status::invalid("--disable-overlap-schedule: this command runs both loops, leave the flag out");
}

void add_bench_overlap_flags(CLI::App& app, BenchOverlapArgs& a) {
  add_engine_flags(app, a.engine);
  app.get_option("--disable-overlap-schedule")->group("");  // only known so that it can be refused
  require_model(app, a.engine);
  add_workload_flags(app, a);
  flag(app, "--pairs", a.pairs, "N", "",
       "Pairs of slices, one of each loop, in the order normal, overlap, overlap, normal. More pairs: a "
       "narrower interval.")
      ->check(CLI::Range(1, 100000));
  flag(app, "--slice-seconds", a.slice_seconds, "X", "1; 10 with --poisson",
       "Length of a slice. Short ones see the same state of a shared machine.")
      ->check(CLI::Range(0.01, 3600.0));
  flag(app, "--poisson", a.poisson, "RATE|half", "off",
       "Compare the time to first token instead: requests arrive at random, RATE per second or at half of "
       "what the normal loop was measured to do; each run of a pair gets the same arrivals.")
      ->check(rate_or_half());
  flag(app, "--seed", a.seed, "N", "", "Prompts and arrival times are a function of it.");
  flag(app, "--trace", a.trace, "FILE", "none",
       "Write what every thread and the device did in the last seconds: for Perfetto and `gapless trace`.");
  toggle(app, "--json", a.json, "off", "One JSON object instead of text.");
  add_log_flags(app, a.log);
}

void add_bench_sampling_flags(CLI::App& app, BenchSamplingArgs& a) {
  a.kinds = sampling_kinds();
  flag(app, "--vocab-sizes", a.vocab_sizes, "N,...", "49152,262144", "Logits of each row.")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 22));
  flag(app, "--rows", a.rows, "N,...", "1,8,32", "Rows that a step samples.")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  flag(app, "--kinds", a.kinds, "NAME,...", "all",
       "What the requests ask for: greedy, temperature, top-p, top-p-flat, penalties, logprobs "
       "(docs/performance.md).")
      ->delimiter(',')
      ->check(one_of(sampling_kinds()));
  flag(app, "--threads", a.threads, "N", "physical cores", "Compute threads.")->check(CLI::Range(1, 1024));
  toggle(app, "--json", a.json, "off", "One JSON object per row instead of a table.");
}

void add_bench_kernels_flags(CLI::App& app, BenchKernelsArgs& a) {
  const BenchKernelsArgs defaults;
  flag(app, "--types", a.types, "TYPE,...", "all",
       fmt::format("Formats of the weights: {}.", fmt::join(defaults.types, ", ")))
      ->delimiter(',')
      ->check(one_of(defaults.types));
  flag(app, "--m", a.m, "N,...", "1,8,32,512",
       "Rows of activations: answers that run at the same time, or tokens of a prompt.")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  flag(app, "--n", a.n, "N,...", "3072,576,640",
       "Outputs, one for each of --k. Default: the feed-forwards of SmolLM2-135M, and of Gemma-3-270M the "
       "way down.")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--k", a.k, "N,...", "576,1536,2048",
       "Inputs. Types that cannot have this many (a multiple of their block: 256 for K-quants, 32 for the "
       "other quants) are left out.")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  add_kernel_flags(app, a);
}

void add_bench_attention_flags(CLI::App& app, BenchAttentionArgs& a) {
  const auto numbers = [&](const char* name, std::vector<int32_t>& values, const char* defaults, int32_t most,
                           const char* why) {
    flag(app, name, values, "N,...", defaults, why)->delimiter(',')->check(CLI::Range(1, most));
  };
  flag(app, "--types", a.types, "TYPE,...", "all", "Types of the KV cache: f16, bf16, int8.")
      ->delimiter(',')
      ->check(one_of({"f16", "bf16", "int8"}));
  numbers("--m", a.m, "1,8,32", 4096, "Answers that run at the same time: one row of each, in decode.");
  numbers("--contexts", a.contexts, "512,2048", 1 << 20, "Positions that each of them sees.");
  numbers("--prompts", a.prompts, "512", 1 << 16, "Tokens of a prompt that is computed in one step.");
  numbers("--heads", a.heads, "9,4", 4096,
          "Heads, one number for each of --kv-heads and --head-dim. Default: SmolLM2-135M and Gemma-3-270M.");
  numbers("--kv-heads", a.kv_heads, "3,1", 4096, "Heads of K and V.");
  numbers("--head-dim", a.head_dim, "64,256", kMaxHeadDim, "Elements of a head.");
  flag(app, "--chunks", a.chunks, "N", "",
       "Few rows are cut into so many chunks over their context; 0: never. The default is what models do.")
      ->check(CLI::Range(0, 4096));
  add_kernel_flags(app, a);
}

void add_selftest_flags(CLI::App& app, SelftestArgs& a) {
  add_engine_flags(app, a.engine);
  app.get_option("--disable-overlap-schedule")->group("");  // only known so that it can be refused
  require_model(app, a.engine);
  flag(
      app, "--requests", a.requests, "N", "",
      "Requests to compare. 200 have every feature in several combinations, and take a small model a minute.")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--seed", a.seed, "N", "", "The requests are a function of it.");
  add_log_flags(app, a.log);
}

}  // namespace gapless
