#include "apps/flags.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "apps/cli.h"

namespace gapless {
namespace {

int run(std::vector<const char*> argv, std::string* err = nullptr) {
  argv.insert(argv.begin(), "gapless");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const int code = run_cli(int(argv.size()), argv.data());
  const std::string out = testing::internal::GetCapturedStdout(),
                    text = testing::internal::GetCapturedStderr();
  if (err) *err = text + out;
  return code;
}

TEST(Flags, ParsesSizes) {
  EXPECT_EQ(parse_bytes("65536").value(), 65536);
  EXPECT_EQ(parse_bytes("512M").value(), 512ll << 20);
  EXPECT_EQ(parse_bytes("2GB").value(), 2ll << 30);
  EXPECT_EQ(parse_bytes("1k").value(), 1024);
  for (const char* bad : {"", "M", "-1", "1.5G", "12X", "9999999999G", "1 M"}) {
    EXPECT_FALSE(parse_bytes(bad).is_ok()) << bad;
  }
}

TEST(Flags, EditDistanceCountsASwapAsOne) {
  EXPECT_EQ(edit_distance("--port", "--port"), 0);
  EXPECT_EQ(edit_distance("--prot", "--port"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Flags, FindsTheNearestFlag) {
  Cli cli;
  const CLI::App& serve = *cli.command("serve");
  EXPECT_EQ(nearest_flag(serve, "--prot"), "--port");
  EXPECT_EQ(nearest_flag(serve, "--max-running"), "--max-running-requests");
  EXPECT_EQ(nearest_flag(serve, "--chunked-prefil-size=4"), "--chunked-prefill-size");
  EXPECT_EQ(nearest_flag(serve, "--radix-cache"), "");
  EXPECT_EQ(nearest_flag(serve, "--completely-different-thing"), "");
}

TEST(Cli, AnUnknownFlagIsAUsageErrorWithASuggestion) {
  std::string text;
  EXPECT_EQ(run({"serve", "x.gguf", "--prot", "80"}, &text), kExitUsage);
  EXPECT_NE(text.find("unknown flag '--prot': did you mean --port?"), std::string::npos) << text;
  EXPECT_EQ(run({"bench", "serve", "--reqests", "3"}, &text), kExitUsage);
  EXPECT_NE(text.find("did you mean --requests?"), std::string::npos) << text;
}

TEST(Cli, HelpIsACommandToo) {
  std::string text, flag;
  EXPECT_EQ(run({"help"}, &text), kExitOk);
  EXPECT_EQ(run({"--help"}, &flag), kExitOk);
  EXPECT_EQ(text, flag);
  EXPECT_EQ(run({"help", "bench", "serve"}, &text), kExitOk);
  EXPECT_EQ(run({"bench", "serve", "--help"}, &flag), kExitOk);
  EXPECT_EQ(text, flag);
}

TEST(Cli, MessagesNameWhatIsMissing) {
  std::string text;
  EXPECT_EQ(run({}, &text), kExitUsage);
  EXPECT_NE(text.find("give a command: serve"), std::string::npos) << text;
  EXPECT_EQ(run({"servee", "x.gguf"}, &text), kExitUsage);
  EXPECT_NE(text.find("did you mean serve?"), std::string::npos) << text;
  EXPECT_EQ(run({"serve"}, &text), kExitUsage);
  EXPECT_NE(text.find("give FILE"), std::string::npos) << text;
  EXPECT_EQ(run({"trace"}, &text), kExitUsage);
  EXPECT_NE(text.find("give FILE, a trace"), std::string::npos) << text;
  EXPECT_EQ(run({"serve", "x.gguf", "--port"}, &text), kExitUsage);
  EXPECT_NE(text.find("--port needs a value"), std::string::npos) << text;
}

TEST(Cli, AMistypedWordIsAnsweredWithTheNearest) {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{"bench", "overlp"}, "there is no file 'overlp': did you mean `gapless bench overlap`?"},
      {{"bench", "overlp", "--pairs", "3"}, "did you mean `gapless bench overlap`?"},
      {{"bench", "srve"}, "did you mean `gapless bench serve`?"},
      {{"selftst"}, "did you mean selftest?"},
      {{"bench", "peers", "--quick"}, "in the repository: ./dev bench peers"},
      {{"model", "smollm2"}, "in the repository: ./dev model"},
      {{"serve", "x.gguf", "--attention-backend", "referense"}, "did you mean reference?"},
      {{"serve", "x.gguf", "--kv-cache-dtype", "f61"}, "'f61' is none of auto, f16, bf16"},
      {{"serve", "x.gguf", "--kv-cache-dtype", "bf1"}, "did you mean bf16?"},
      {{"bench", "kernels", "--types", "Q4_K,Q4_9"}, "'Q4_9' is none of Q4_0, "},
      {{"serve", "--device", "sim:h100-llama3-8"}, "did you mean sim:h100-llama3-8b?"},
      {{"serve", "--device", "cpu-smollm2"}, "did you mean sim:cpu-smollm2?"},
      {{"selftest", "--device", "zreo"}, "did you mean sim:zero?"},
  };
  for (const auto& [argv, message] : cases) {
    std::string text;
    EXPECT_EQ(run(argv, &text), kExitUsage);
    EXPECT_NE(text.find(message), std::string::npos) << text;
  }
  std::string text;
  run({"serve", "--device", "cuda"}, &text);
  EXPECT_EQ(text.find("did you mean"), std::string::npos) << text;
}

TEST(Cli, MessagesNameTheDeviceThatNeedsNoFile) {
  std::string text;
  for (const char* command : {"serve", "selftest"}) {
    EXPECT_EQ(run({command}, &text), kExitUsage);
    EXPECT_NE(text.find("or --device sim:PROFILE, which needs none"), std::string::npos) << text;
    EXPECT_EQ(run({command, "--help"}, &text), kExitOk);
    EXPECT_NE(text.find(fmt::format("usage: gapless {} [FILE] [FLAGS]", command)), std::string::npos) << text;
  }
  EXPECT_EQ(run({"inspect"}, &text), kExitUsage);
  EXPECT_EQ(text.find("--device"), std::string::npos) << text;
  EXPECT_EQ(run({"inspect", "--help"}, &text), kExitOk);
  EXPECT_NE(text.find("usage: gapless inspect FILE [FLAGS]"), std::string::npos) << text;
  EXPECT_EQ(run({"bench"}, &text), kExitUsage);
  EXPECT_NE(text.find("`bench overlap`"), std::string::npos) << text;
}

// `--api-key "$KEY"` with KEY not set must not open the server to everybody.
TEST(Cli, AnEmptyKeyIsRefused) {
  std::string text;
  EXPECT_EQ(run({"serve", "x.gguf", "--api-key", ""}, &text), kExitUsage);
  EXPECT_NE(text.find("--api-key: the value is empty"), std::string::npos) << text;
}

TEST(Cli, BenchKernelsSaysWhichInputsAreTooFew) {
  std::string text;
  EXPECT_EQ(run({"bench", "kernels", "--types", "Q4_K,Q4_1", "--k", "100", "--n", "16"}, &text), kExitUsage);
  EXPECT_NE(text.find("--k 100: Q4_K, Q4_1 can only have multiples of 32"), std::string::npos) << text;
}

TEST(Cli, WrongUseExitsWithTwo) {
  EXPECT_EQ(run({}), kExitUsage);
  EXPECT_EQ(run({"frobnicate"}), kExitUsage);
  EXPECT_EQ(run({"serve"}), kExitUsage);
  EXPECT_EQ(run({"serve", "x.gguf", "--port", "70000"}), kExitUsage);
  EXPECT_EQ(run({"serve", "x.gguf", "--kv-mem", "12X"}), kExitUsage);
  EXPECT_EQ(run({"bench"}), kExitUsage);
  EXPECT_EQ(run({"bench", "serve", "--url", "ftp://x"}), kExitUsage);
  EXPECT_EQ(run({"serve", "x.gguf", "--kv-mem", "1G", "--max-total-tokens", "4096"}), kExitUsage);
}

TEST(Cli, AMissingFileExitsWithOneAndNamesIt) {
  std::string text;
  EXPECT_EQ(run({"inspect", "/nonexistent/model.gguf"}, &text), kExitRuntime);
  EXPECT_NE(text.find("/nonexistent/model.gguf"), std::string::npos) << text;
  EXPECT_EQ(run({"trace", "/nonexistent/trace.json"}, &text), kExitRuntime);
  EXPECT_NE(text.find("/nonexistent/trace.json: No such file"), std::string::npos) << text;
}

TEST(Cli, HelpAndVersionExitWithZero) {
  std::string text;
  EXPECT_EQ(run({"--version"}, &text), kExitOk);
  EXPECT_EQ(text, "gapless " GAPLESS_VERSION "\n");
  EXPECT_EQ(run({"serve", "--help"}, &text), kExitOk);
  EXPECT_NE(text.find("--port N  [default: 8080]"), std::string::npos) << text;
}

// Every flag has a default (or is help, or a file that must be given) and a reason.
TEST(Cli, EveryFlagIsExplained) {
  Cli cli;
  for (const CLI::App* app :
       {cli.command("serve"), cli.command("chat"), cli.command("inspect"), cli.command("bench"),
        cli.command("bench")->get_subcommand("serve"), cli.command("bench")->get_subcommand("overlap"),
        cli.command("bench")->get_subcommand("kernels"), cli.command("bench")->get_subcommand("attention"),
        cli.command("selftest"), cli.command("trace")}) {
    const std::string help = help_text(*app);
    for (const FlagRow& row : flag_rows(*app)) {
      EXPECT_GT(row.why.size(), 10u) << row.names;
      EXPECT_NE(help.find(row.names), std::string::npos) << row.names;
      const bool needs_default =
          row.names.find("help") == std::string::npos && row.names.find("FILE") == std::string::npos;
      EXPECT_EQ(row.default_text.empty(), !needs_default) << row.names;
    }
  }
}

std::string command_section(const Cli& cli, const std::string& title, const CLI::App* app) {
  (void)cli;
  return "## gapless " + title + "\n\n" + app->get_description() + "\n\n" + markdown_table(*app);
}

// docs/cli.md repeats what --help says. After changing a flag, take the text this test prints.
TEST(Cli, TheDocumentationHasTheSameFlagsAndDefaults) {
  std::ifstream file(GAPLESS_DOCS "/cli.md");
  std::stringstream docs;
  docs << file.rdbuf();
  Cli cli;
  const CLI::App* bench = cli.command("bench");
  const std::pair<std::string, const CLI::App*> commands[] = {
      {"serve", cli.command("serve")},
      {"chat", cli.command("chat")},
      {"inspect", cli.command("inspect")},
      {"bench", bench},
      {"bench serve", bench->get_subcommand("serve")},
      {"bench overlap", bench->get_subcommand("overlap")},
      {"bench sampling", bench->get_subcommand("sampling")},
      {"bench kernels", bench->get_subcommand("kernels")},
      {"bench attention", bench->get_subcommand("attention")},
      {"selftest", cli.command("selftest")},
      {"trace", cli.command("trace")}};
  for (const auto& [title, app] : commands) {
    const std::string section = command_section(cli, title, app);
    EXPECT_NE(docs.str().find(section), std::string::npos) << "docs/cli.md lacks this section:\n" << section;
  }
}

TEST(Cli, BenchOverlapTakesARateOrHalf) {
  Cli cli;
  const char* argv[] = {"gapless",   "bench", "overlap", "--device", "sim:zero",
                        "--poisson", "half",  "--batch", "9"};
  cli.app.parse(int(std::size(argv)), argv);
  EXPECT_EQ(cli.bench_overlap.poisson, "half");
  EXPECT_EQ(cli.bench_overlap.batch, 9);
  std::string text;
  for (const char* bad : {"0", "-1", "x", "half2"}) {
    EXPECT_EQ(run({"bench", "overlap", "--device", "sim:zero", "--poisson", bad}, &text), kExitUsage) << bad;
    EXPECT_NE(text.find("nor half"), std::string::npos) << text;
  }
  EXPECT_EQ(run({"bench", "overlap", "--device", "sim:zero", "--poisson", "half", "--sink", "http"}, &text),
            kExitUsage);
  EXPECT_EQ(run({"bench", "overlap"}, &text), kExitUsage);
  EXPECT_NE(text.find("give FILE"), std::string::npos) << text;
  EXPECT_EQ(run({"selftest"}, &text), kExitUsage);
}

TEST(Args, BecomeEngineOptions) {
  Cli cli;
  const char* argv[] = {"gapless",
                        "serve",
                        "m.gguf",
                        "--threads",
                        "3",
                        "--page-size",
                        "1",
                        "--kv-mem",
                        "64M",
                        "--isa",
                        "avx2",
                        "--kv-cache-dtype",
                        "bf16",
                        "--chunked-prefill-size",
                        "-1",
                        "--no-mixed-chunk",
                        "--disable-radix-cache",
                        "--schedule-policy",
                        "dfs-weight"};
  cli.app.parse(int(std::size(argv)), argv);
  const EngineOptions o = engine_options(cli.serve.engine).value();
  EXPECT_EQ(o.model_path, "m.gguf");
  EXPECT_EQ(o.threads, 3);
  EXPECT_EQ(o.isa, "avx2");
  EXPECT_EQ(o.kv_dtype, KvDtype::kBF16);
  EXPECT_EQ(o.kv_mem_bytes, 64 << 20);
  EXPECT_EQ(o.scheduler.page_size, 1);
  EXPECT_EQ(o.scheduler.chunked_prefill_size, -1);
  EXPECT_FALSE(o.scheduler.mixed_chunk);
  EXPECT_FALSE(o.scheduler.radix_cache);
  EXPECT_EQ(o.scheduler.policy, SchedulePolicy::kDfsWeight);
}

TEST(Args, NameTheTypesOfTheKvCache) {
  EngineArgs args;
  for (const KvDtype dtype : kKvDtypes) {
    args.kv_cache_dtype = kv_dtype_name(dtype);
    EXPECT_EQ(engine_options(args)->kv_dtype, dtype);
  }
  args.kv_cache_dtype = "auto";
  EXPECT_EQ(engine_options(args)->kv_dtype, KvDtype::kF16);
  std::string text;
  EXPECT_EQ(run({"serve", "m.gguf", "--kv-cache-dtype", "fp8"}, &text), kExitUsage);
}

// The defaults of the flags are those of the engine: two tables of the same numbers would drift.
TEST(Args, DefaultsAreTheEnginesOwn) {
  const EngineOptions flags = engine_options(EngineArgs{}).value(), engine;
  EXPECT_EQ(flags.threads, engine.threads);
  EXPECT_EQ(flags.isa, engine.isa);
  EXPECT_EQ(flags.kv_dtype, engine.kv_dtype);
  EXPECT_EQ(flags.attention_backend, engine.attention_backend);
  EXPECT_EQ(flags.scheduler.max_running_requests, engine.scheduler.max_running_requests);
  EXPECT_EQ(flags.scheduler.max_queued_requests, engine.scheduler.max_queued_requests);
  EXPECT_EQ(flags.scheduler.page_size, engine.scheduler.page_size);
  EXPECT_EQ(flags.scheduler.chunked_prefill_size, engine.scheduler.chunked_prefill_size);
  EXPECT_EQ(flags.scheduler.max_prefill_tokens, engine.scheduler.max_prefill_tokens);
  EXPECT_EQ(flags.scheduler.mixed_chunk, engine.scheduler.mixed_chunk);
  EXPECT_EQ(flags.scheduler.radix_cache, engine.scheduler.radix_cache);
  EXPECT_EQ(flags.scheduler.policy, engine.scheduler.policy);
  EXPECT_EQ(flags.scheduler.schedule_conservativeness, engine.scheduler.schedule_conservativeness);
  EXPECT_EQ(flags.scheduler.max_consecutive_prefill, engine.scheduler.max_consecutive_prefill);
}

TEST(Args, DefaultsAreTheServersOwn) {
  const ServerConfig flags = server_config(ServeArgs{}).value(), server;
  EXPECT_EQ(flags.host, server.host);
  EXPECT_EQ(flags.port, server.port);
  EXPECT_EQ(flags.api_keys, server.api_keys);
  EXPECT_EQ(flags.cors_origins, server.cors_origins);
  EXPECT_EQ(flags.strict_model, server.strict_model);
  EXPECT_EQ(flags.max_body_bytes, server.max_body_bytes);
  EXPECT_EQ(flags.max_connections, server.max_connections);
  EXPECT_EQ(flags.shutdown_timeout, server.shutdown_timeout);
  EXPECT_EQ(flags.write_timeout, server.write_timeout);
}

TEST(Args, KeysComeFromTheFlagAndTheFile) {
  const std::string path = testing::TempDir() + "/keys";
  std::ofstream(path) << "# comment\nfirst\r\n\nsecond\n";
  ServeArgs args;
  args.api_key = "third";
  args.api_key_file = path;
  EXPECT_EQ(server_config(args).value().api_keys, (std::vector<std::string>{"first", "second", "third"}));
  args.api_key_file = "/nonexistent";
  EXPECT_FALSE(server_config(args).is_ok());
}

}  // namespace
}  // namespace gapless
