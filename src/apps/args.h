// What the subcommands can be told, as plain values, and the rules between the values. The names are SGLang's
// where it has the flag.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "engine/engine_options.h"
#include "server/server_config.h"

namespace gapless {

// Flags of everything that loads a model: serve, chat, bench.
struct EngineArgs {
  std::string model;
  std::string served_model_name;
  int32_t threads = 0;
  std::string isa = "auto";
  std::string device = "cpu";
  std::string attention_backend = "cpu";
  std::optional<int32_t> max_running_requests;  // what suits the device
  int32_t max_queued_requests = 2048;
  std::optional<int32_t> chunked_prefill_size;  // the same
  int32_t max_prefill_tokens = 16384;
  std::string schedule_policy = "lpm";
  double schedule_conservativeness = 1.0;
  int32_t page_size = 16;
  int64_t max_total_tokens = 0;
  std::string kv_mem;
  std::string kv_cache_dtype = "f16";
  int32_t context_length = 0;
  bool disable_radix_cache = false;
  bool mixed_chunk = true;
  int32_t max_consecutive_prefill = 1;
  bool disable_overlap_schedule = false;
  std::string chat_template;
};

struct LogArgs {
  bool json = false;
  bool verbose = false;
  std::string level = "info";
};

struct ServeArgs {
  EngineArgs engine;
  bool profile = false;
  LogArgs log;
  std::string host = "127.0.0.1";
  int32_t port = 8080;
  std::string port_file;
  std::string api_key;
  std::string api_key_file;
  std::string cors_origin = "*";
  bool strict_model = false;
  std::string max_body_size = "32M";
  int32_t max_connections = 0;
  int32_t shutdown_timeout = 30;
  int32_t slow_client_timeout = 30;
};

struct ChatArgs {
  EngineArgs engine;
  LogArgs log{.level = "warn"};
  std::string system;
  double temperature = 0.7;
  double top_p = 0.95;
  int64_t seed = -1;
  int32_t max_tokens = 0;
};

struct InspectArgs {
  std::string model;
  bool tensors = false;
};

struct BenchArgs {
  EngineArgs engine;
  LogArgs log{.level = "warn"};
  std::vector<int32_t> batch_sizes{1, 2, 4, 8, 16, 32};
  std::vector<int32_t> prompt_lengths{128, 512};
  int32_t decode_tokens = 64;
  std::string trace;
  bool json = false;
};

struct BenchKernelsArgs {
  std::vector<std::string> types{"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K",
                                 "Q5_K", "Q6_K", "F16",  "BF16", "F32"};
  std::vector<int32_t> m{1, 8, 32, 512};
  std::vector<int32_t> n{3072, 576, 640}, k{576, 1536, 2048};
  int32_t threads = 0;
  std::string isa = "auto";
  bool json = false;
};

struct BenchAttentionArgs {
  std::vector<std::string> types{"f16", "bf16", "int8"};
  std::vector<int32_t> m{1, 8, 32}, contexts{512, 2048}, prompts{512};
  std::vector<int32_t> heads{9, 4}, kv_heads{3, 1}, head_dim{64, 256};
  int32_t chunks = kAttentionChunks;
  int32_t threads = 0;
  std::string isa = "auto";
  bool json = false;
};

struct BenchOverlapArgs {
  EngineArgs engine;
  LogArgs log{.level = "warn"};
  int32_t batch = 32;
  int32_t prompt_len = 128, decode_len = 128;
  int32_t queued = 0;
  int64_t tree_tokens = 0;
  int32_t logprobs = -1;
  bool penalties = false;
  std::string sink = "inproc";
  int32_t pairs = 10;
  double slice_seconds = 0;  // 0: as the kind of run needs
  std::string poisson;       // empty, "half" or a number
  uint64_t seed = 1;
  std::string trace;
  bool json = false;
};

struct BenchSamplingArgs {
  std::vector<int32_t> vocab_sizes{49152, 262144};
  std::vector<int32_t> rows{1, 8, 32};
  std::vector<std::string> kinds;  // by default all
  int32_t threads = 0;
  bool json = false;
};

struct SelftestArgs {
  EngineArgs engine;
  LogArgs log{.level = "warn"};
  int32_t requests = 200;
  uint64_t seed = 1;
};

inline constexpr int32_t kDefaultConcurrency = 8;

struct BenchServeArgs {
  std::string url = "http://127.0.0.1:8080";
  std::string model = "default";
  std::string api_key;
  int32_t concurrency = 0;  // 0: not given
  int32_t requests = 32;
  int32_t prompt_tokens = 128;
  int32_t max_tokens = 128;
  int32_t shared_prefix = 0;
  uint64_t seed = 1;
  double request_rate = 0;
  int32_t timeout = 600;
};

struct TraceArgs {
  std::string file;
  bool json = false;
  int32_t longest = 5;
  std::string svg;
  double from = -1, ms = 0;  // milliseconds; none given: chosen
};

// Parts of the commands that load a model.
void add_engine_flags(CLI::App& app, EngineArgs& args);
void add_log_flags(CLI::App& app, LogArgs& args);
void require_model(CLI::App& app, const EngineArgs& args);

// The commands.
void add_serve_flags(CLI::App& app, ServeArgs& args);
void add_chat_flags(CLI::App& app, ChatArgs& args);
void add_inspect_flags(CLI::App& app, InspectArgs& args);
void add_bench_flags(CLI::App& app, BenchArgs& args);
void add_bench_serve_flags(CLI::App& app, BenchServeArgs& args);
void add_bench_kernels_flags(CLI::App& app, BenchKernelsArgs& args);
void add_bench_attention_flags(CLI::App& app, BenchAttentionArgs& args);
void add_bench_overlap_flags(CLI::App& app, BenchOverlapArgs& args);
void add_bench_sampling_flags(CLI::App& app, BenchSamplingArgs& args);
void add_selftest_flags(CLI::App& app, SelftestArgs& args);
void add_trace_flags(CLI::App& app, TraceArgs& args);

// The engine's view of the flags. What depends on the model or the machine (sizes, clipping) is the engine's
// to decide; this refuses what contradicts itself.
Result<EngineOptions> engine_options(const EngineArgs& args);

// The same for the HTTP side; reads --api-key-file.
Result<ServerConfig> server_config(const ServeArgs& args);

// Of the commands that run both loops: an error when one was chosen.
Status check_runs_both_loops(const EngineArgs& args);

}  // namespace gapless
