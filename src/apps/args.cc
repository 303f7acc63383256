#include "apps/args.h"

#include <fmt/ranges.h>

#include "device/registry.h"
#include "device/sim/sim_profile.h"
#include "server/access.h"

namespace gapless {

namespace {

CLI::Option* add_model(CLI::App& app, std::string& model) {
  return app
      .add_option("FILE,--model", model, "A model in GGUF format (version 2 or 3); --model FILE is the same.")
      ->type_name("FILE");
}

constexpr std::string_view kSim = "sim:";

// What is left of a mistyped profile is recognised with and without the device's name.
CLI::Validator device_spec() {
  return CLI::Validator(
      [](std::string& spec) {
        const Status status = make_device(spec, {}).status();
        if (status.is_ok()) return std::string();
        const std::string near =
            nearest_word(spec.substr(spec.starts_with(kSim) ? kSim.size() : 0), sim_profile_names());
        return status.message() + (near.empty() ? "" : fmt::format(": did you mean {}{}?", kSim, near));
      },
      "", "device");
}

void add_compute_flags(CLI::App& app, EngineArgs& a) {
  flag(app, "--threads", a.threads, "N", "physical cores",
       "Compute threads. Default: the physical cores that the cgroup and the affinity mask allow, because "
       "two hyperthreads of a core "
       "share its vector units. The start banner says what was counted.")
      ->check(CLI::Range(0, 1024));
  flag(app, "--isa", a.isa, "NAME", "",
       "Instruction set of the kernels: auto (the best this CPU has), avx512 or avx2 (x86-64), neon (arm64 "
       "with the dot product), reference (plain loops, any CPU, slow). On one machine all of them give the "
       "same answers, bit for bit.")
      ->check(one_of({"auto", "avx512", "avx2", "neon", "reference"}));
  flag(app, "--device", a.device, "NAME", "",
       fmt::format(
           "The device that computes: cpu, or sim:PROFILE, a simulated accelerator that answers nonsense "
           "at the speed of the profile and needs no FILE. Profiles: {}.",
           fmt::join(sim_profile_names(), ", ")))
      ->check(device_spec());
  flag(app, "--attention-backend", a.attention_backend, "NAME", "",
       "Attention alone: cpu, the kernels of --isa, or reference, plain loops, slow, to compare with. For "
       "every operation: --isa reference.")
      ->check(one_of({"cpu", "reference"}));
}

void add_cache_flags(CLI::App& app, EngineArgs& a) {
  flag(app, "--page-size", a.page_size, "N", "",
       "Tokens per page of the KV cache. Prefixes are shared in whole pages: smaller shares more, larger "
       "keeps less to manage; 16 loses "
       "at most 15 tokens per prompt.")
      ->check(CLI::Range(1, 256));
  flag(app, "--max-total-tokens", a.max_total_tokens, "N", "from --kv-mem",
       "Tokens the KV cache holds, shared by all requests.")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  flag(app, "--kv-mem", a.kv_mem, "SIZE", "a quarter of the memory",
       "Size of the KV cache (512M, 2G). Default: a quarter of what the cgroup or machine has, which leaves "
       "room for the weights; memory "
       "is committed only when it is used.")
      ->check(byte_size());
  flag(app, "--kv-cache-dtype", a.kv_cache_dtype, "TYPE", "",
       "f16, bf16, int8 or auto, which is f16. f16 keeps three bits more of each value than bf16 at the same "
       "size; int8, with a scale for each token and head, holds almost twice the tokens and reads half the "
       "bytes, for answers a little further from exact ones (docs/performance.md).")
      ->check(one_of({"auto", "f16", "bf16", "int8"}));
  flag(app, "--context-length", a.context_length, "N", "the model's",
       "Tokens that the prompt and the answer of one request may have together. The cache is shared, so "
       "every request may use the "
       "model's whole context.")
      ->check(CLI::Range(0, 1 << 24));
  toggle(
      app, "--disable-radix-cache", a.disable_radix_cache, "off",
      "Do not reuse the KV cache of earlier prompts. Off, because a cached answer is the same bit for bit.");
}

void add_schedule_flags(CLI::App& app, EngineArgs& a) {
  flag(app, "--max-running-requests", a.max_running_requests, "N", "64 on cpu, else 256",
       "Requests that generate at the same time. Beyond 64 a CPU adds latency and no throughput.")
      ->check(CLI::Range(1, 4096));
  flag(app, "--max-queued-requests", a.max_queued_requests, "N", "",
       "Requests that may wait; more are refused with 429 and Retry-After. 2048: an answer that would come "
       "minutes late is better "
       "refused at once.")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--chunked-prefill-size", a.chunked_prefill_size, "N", "512 on cpu, else 4096",
       "Prompt tokens computed per step; a longer prompt is cut, so that running answers go on in between. "
       "-1: never cut. About the fewest tokens at which a device is at full speed.")
      ->check(CLI::Range(-1, 1 << 20));
  flag(app, "--max-prefill-tokens", a.max_prefill_tokens, "N", "",
       "Prompt tokens per step when prompts are not cut.")
      ->check(CLI::Range(1, 1 << 24));
  flag(app, "--schedule-policy", a.schedule_policy, "NAME", "",
       "Order of waiting requests: lpm (longest cached prefix first; first come first served when the queue "
       "is long), fcfs, lof (longest "
       "output first), random, dfs-weight. lpm computes shared prompts once.")
      ->check(one_of({"lpm", "fcfs", "lof", "random", "dfs-weight"}));
  flag(app, "--schedule-conservativeness", a.schedule_conservativeness, "X", "1",
       "How much room for growth is kept when a request is admitted. Raise it if many requests are "
       "retracted, lower it if the cache stays "
       "half empty.")
      ->check(CLI::Range(0.0, 10.0));
  flag(app, "--max-consecutive-prefill", a.max_consecutive_prefill, "N", "",
       "Steps in a row that compute prompts alone while answers are waiting to go on. 1: no answer pauses "
       "for longer than one chunk.")
      ->check(CLI::Range(1, 1 << 20));
  toggle(app, "--enable-mixed-chunk,!--no-mixed-chunk", a.mixed_chunk, "on",
         "Compute prompt chunks and running answers in one step. On, because answers do not depend on it and "
         "nobody waits for a prompt.");
  toggle(
      app, "--disable-overlap-schedule", a.disable_overlap_schedule, "off",
      "Prepare a step only when the one before it has been processed. Overlap is on, because answers do not "
      "depend on it and the device does not wait for the host (docs/overlap.md).");
}

}  // namespace

// The simulated device brings a model of its own.
void require_model(CLI::App& app, const EngineArgs& a) {
  app.parse_complete_callback([&a] {
    if (a.model.empty() && !a.device.starts_with("sim")) throw CLI::RequiredError("FILE");
  });
}

void add_engine_flags(CLI::App& app, EngineArgs& a) {
  add_model(app, a.model);
  flag(app, "--served-model-name", a.served_model_name, "NAME", "the file's name",
       "The model's name in the API.");
  flag(app, "--chat-template", a.chat_template, "NAME|FILE", "the file's own",
       "Chat template: a built-in name (an unknown one lists them) or a file in Jinja. Needed for chat with "
       "a model that brings none.");
  add_compute_flags(app, a);
  add_schedule_flags(app, a);
  add_cache_flags(app, a);
}

void add_log_flags(CLI::App& app, LogArgs& a) {
  toggle(app, "--log-json", a.json, "off", "One JSON object per log line, for machines to read.");
  toggle(app, "-v,--verbose", a.verbose, "off", "The same as --log-level debug.");
  flag(app, "--log-level", a.level, "LEVEL", "",
       "debug, info, warn or error, on stderr. info is one line per request and, while busy, one line of "
       "figures every few seconds.")
      ->check(one_of({"debug", "info", "warn", "error"}));
}

void add_serve_flags(CLI::App& app, ServeArgs& a) {
  add_engine_flags(app, a.engine);
  require_model(app, a.engine);
  flag(app, "--host", a.host, "ADDRESS", "",
       "Address to listen on, or unix:PATH. Only this machine can connect by default; 0.0.0.0 or :: for "
       "everyone (then set "
       "--api-key).");
  flag(app, "--port", a.port, "N", "",
       "Port to listen on, bound before the model loads. 0: any free port, printed at start.")
      ->check(CLI::Range(0, 65535));
  toggle(
      app, "--profile", a.profile, "off",
      "Measure every operation of every step: GET /profile shows them, and so does the end of the program. "
      "Off, because it may cost a percent or two.");
  flag(app, "--port-file", a.port_file, "FILE", "none",
       "Write the port number to this file once it is bound.");
  flag(app, "--api-key", a.api_key, "KEY", "none",
       "Ask for this key (Authorization: Bearer KEY). Visible in the process list: better --api-key-file.")
      ->check(not_empty());
  flag(app, "--api-key-file", a.api_key_file, "FILE", "none",
       "File with one key per line; a line that begins with # is a comment.");
  flag(app, "--cors-origin", a.cors_origin, "ORIGIN", "",
       "Origin that web pages may call from; none: no page may. Any, because without a key there is nothing "
       "to protect.");
  flag(app, "--max-body-size", a.max_body_size, "SIZE", "", "Largest request body; more is refused with 413.")
      ->check(byte_size());
  flag(app, "--max-connections", a.max_connections, "N", "what the descriptor limit allows",
       "Connections at the same time; one more is answered 503. The limit of open files is raised at start "
       "as far as allowed.")
      ->check(CLI::Range(0, 1 << 20));
  toggle(app, "--strict-model", a.strict_model, "off",
         "Answer 404 to a request that names another model. Off: one model is served, and many clients send "
         "a name of their own.");
  flag(app, "--shutdown-timeout", a.shutdown_timeout, "SECONDS", "",
       "After SIGTERM or Ctrl-C running answers may finish for this long. 30: what service managers wait "
       "before they kill.")
      ->check(CLI::Range(0, 3600));
  flag(app, "--slow-client-timeout", a.slow_client_timeout, "SECONDS", "",
       "A client that takes nothing for this long is dropped, and its request aborted.")
      ->check(CLI::Range(1, 3600));
  add_log_flags(app, a.log);
}

void add_chat_flags(CLI::App& app, ChatArgs& a) {
  add_engine_flags(app, a.engine);
  require_model(app, a.engine);
  flag(app, "--system", a.system, "TEXT", "none", "System message.");
  flag(app, "--temperature", a.temperature, "X", "0.7",
       "0: always the most likely token. 0.7 reads well with small models.")
      ->check(CLI::Range(0.0, 2.0));
  flag(app, "--top-p", a.top_p, "X", "0.95",
       "Sample among the most likely tokens that add up to this probability.")
      ->check(CLI::Range(0.0, 1.0));
  flag(app, "--seed", a.seed, "N", "random", "The same seed gives the same answers.");
  flag(app, "--max-tokens", a.max_tokens, "N", "to the context's end", "Longest answer.")
      ->check(CLI::Range(0, 1 << 24));
  add_log_flags(app, a.log);
}

void add_inspect_flags(CLI::App& app, InspectArgs& a) {
  add_model(app, a.model)->required();
  toggle(app, "--tensors", a.tensors, "off", "List every tensor with its type and shape.");
}

void add_bench_flags(CLI::App& app, BenchArgs& a) {
  add_engine_flags(app, a.engine);
  flag(app, "--batch-sizes", a.batch_sizes, "N,...", "1,2,4,8,16,32",
       "Answers generated at the same time, one row of figures each.")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  flag(app, "--prompt-lengths", a.prompt_lengths, "N,...", "128,512", "Prompt tokens of each request.")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--decode-tokens", a.decode_tokens, "N", "",
       "Tokens generated for each request; with fewer than 8 there are no figures of decode.")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--trace", a.trace, "FILE", "none",
       "Write what every thread and the device did in the last seconds: for Perfetto and `gapless trace`.");
  toggle(app, "--json", a.json, "off", "One JSON object per row instead of a table.");
  add_log_flags(app, a.log);
}

void add_bench_serve_flags(CLI::App& app, BenchServeArgs& a) {
  flag(app, "--url", a.url, "URL", "", "An OpenAI-compatible server (http only).");
  flag(app, "--model", a.model, "NAME", "", "The model's name in the requests.");
  flag(app, "--api-key", a.api_key, "KEY", "none", "Sent as Authorization: Bearer KEY.");
  flag(app, "--concurrency", a.concurrency, "N", std::to_string(kDefaultConcurrency),
       "Requests in flight at most. With --request-rate: unlimited unless given.")
      ->check(CLI::Range(1, 100000));
  flag(app, "--requests", a.requests, "N", "", "Requests in all.")->check(CLI::Range(1, 10000000));
  flag(app, "--prompt-tokens", a.prompt_tokens, "N", "", "Words of each prompt (most are one token).")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--max-tokens", a.max_tokens, "N", "",
       "Tokens generated for each request (end-of-text is ignored).")
      ->check(CLI::Range(1, 1 << 20));
  flag(app, "--shared-prefix", a.shared_prefix, "N", "", "The first N words are the same in every prompt.")
      ->check(CLI::Range(0, 1 << 20));
  flag(app, "--seed", a.seed, "N", "", "Prompts and arrival times are a function of it.");
  flag(app, "--request-rate", a.request_rate, "X", "all at once",
       "Requests per second, arriving at random (Poisson), whether or not earlier ones are done.")
      ->check(CLI::Range(0.0, 1e6));
  flag(app, "--timeout", a.timeout, "SECONDS", "", "A request that takes longer has failed.")
      ->check(CLI::Range(1, 86400));
}

void add_trace_flags(CLI::App& app, TraceArgs& a) {
  app.add_option("FILE", a.file, "A trace: what GET /trace answers; - reads it from stdin.")
      ->type_name("FILE")
      ->required();
  toggle(app, "--json", a.json, "off", "One JSON object instead of text; lengths are in microseconds.");
  flag(app, "--longest", a.longest, "N", "",
       "How many of the longest gaps to show with what the host did then.")
      ->check(CLI::Range(0, 1000));
  flag(app, "--svg", a.svg, "FILE", "none",
       "Draw a part of the trace into this file instead of a report: a lane for each thread and the device, "
       "its gaps shaded.");
  flag(app, "--from", a.from, "MS", "in the middle of steady decode",
       "Where the picture of --svg begins, in milliseconds of the trace.")
      ->check(CLI::Range(0.0, 1e9));
  flag(app, "--ms", a.ms, "MS", "four steps", "How much time the picture of --svg shows, in milliseconds.")
      ->check(CLI::Range(0.001, 1e6));
}

Result<EngineOptions> engine_options(const EngineArgs& a) {
  if (a.max_total_tokens > 0 && !a.kv_mem.empty()) {
    return Status::invalid(
        "--max-total-tokens {} and --kv-mem {} both set the size of the KV cache: give one",
        a.max_total_tokens, a.kv_mem);
  }
  EngineOptions o;
  o.model_path = a.model;
  o.served_model_name = a.served_model_name;
  o.chat_template = a.chat_template;
  o.device = a.device;
  o.threads = a.threads;
  o.isa = a.isa;
  o.attention_backend = a.attention_backend;
  o.disable_overlap_schedule = a.disable_overlap_schedule;
  for (const KvDtype dtype : kKvDtypes)  // auto stays what it is
    if (a.kv_cache_dtype == kv_dtype_name(dtype)) o.kv_dtype = dtype;
  if (!a.kv_mem.empty()) {
    ASSIGN_OR_RETURN(o.kv_mem_bytes, parse_bytes(a.kv_mem));
  }
  o.context_length = a.context_length;
  SchedulerConfig& s = o.scheduler = scheduler_defaults(o.device);
  s.max_running_requests = a.max_running_requests.value_or(s.max_running_requests);
  s.max_queued_requests = a.max_queued_requests;
  s.max_total_tokens = a.max_total_tokens;
  s.page_size = a.page_size;
  s.chunked_prefill_size = a.chunked_prefill_size.value_or(s.chunked_prefill_size);
  s.max_prefill_tokens = a.max_prefill_tokens;
  s.mixed_chunk = a.mixed_chunk;
  s.radix_cache = !a.disable_radix_cache;
  s.schedule_conservativeness = a.schedule_conservativeness;
  s.max_consecutive_prefill = a.max_consecutive_prefill;
  ASSIGN_OR_RETURN(s.policy, parse_schedule_policy(a.schedule_policy));
  return o;
}

Result<ServerConfig> server_config(const ServeArgs& a) {
  ServerConfig c;
  c.host = a.host;
  c.port = uint16_t(a.port);
  c.port_file = a.port_file;
  if (!a.api_key_file.empty()) {
    ASSIGN_OR_RETURN(c.api_keys, read_api_key_file(a.api_key_file));
  }
  if (!a.api_key.empty()) c.api_keys.push_back(a.api_key);
  c.cors_origins = {a.cors_origin};
  if (a.cors_origin == "none") c.cors_origins.clear();
  c.strict_model = a.strict_model;
  ASSIGN_OR_RETURN(c.max_body_bytes, parse_bytes(a.max_body_size));
  c.max_connections = a.max_connections;
  c.shutdown_timeout = std::chrono::seconds(a.shutdown_timeout);
  c.write_timeout = std::chrono::seconds(a.slow_client_timeout);
  return c;
}

}  // namespace gapless
