// The program as a whole: subcommands, exit codes, what happens with a flag that does not exist.
#pragma once

#include <memory>

#include "apps/args.h"

namespace gapless {

inline constexpr int kExitOk = 0;       // done, or ended by a signal that was handled
inline constexpr int kExitRuntime = 1;  // the command line was fine, something else was not
inline constexpr int kExitUsage = 2;    // the command line is wrong

// The parser with all its subcommands, and the values it fills in.
struct Cli {
  ServeArgs serve;
  ChatArgs chat;
  InspectArgs inspect;
  BenchArgs bench;
  BenchServeArgs bench_serve;
  BenchKernelsArgs bench_kernels;
  BenchAttentionArgs bench_attention;
  BenchOverlapArgs bench_overlap;
  BenchSamplingArgs bench_sampling;
  SelftestArgs selftest;
  TraceArgs trace;
  CLI::App app{"Gapless: an LLM inference server", "gapless"};

  Cli();
  CLI::App* command(const std::string& name) { return app.get_subcommand(name); }
};

// Parses, runs the subcommand, returns the exit code.
int run_cli(int argc, const char* const* argv);

// The subcommands, one file each. They print their errors and return the exit code.
int run_serve(const ServeArgs& args);
int run_chat(const ChatArgs& args);
int run_inspect(const InspectArgs& args);
int run_bench(const BenchArgs& args);
int run_bench_serve(const BenchServeArgs& args);
int run_bench_kernels(const BenchKernelsArgs& args);
int run_bench_attention(const BenchAttentionArgs& args);
int run_bench_overlap(const BenchOverlapArgs& args);
int run_bench_sampling(const BenchSamplingArgs& args);
int run_selftest(const SelftestArgs& args);
int run_trace(const TraceArgs& args);

// kExitUsage when a flag is at fault (engine/loader.h marks those), else kExitRuntime.
int exit_code_of(const Status& status);

// Prints "gapless: message" on stderr; the code is what run_* should return.
int fail(int exit_code, const Status& status);

}  // namespace gapless
