// `gapless serve`: binds the port, loads the model, serves until a signal, drains, says what was done.
#include <cstdio>
#include <future>

#include "apps/banner.h"
#include "apps/cli.h"
#include "apps/service_manager.h"
#include "apps/signals.h"
#include "base/log.h"
#include "engine/engine.h"
#include "server/http_server.h"

namespace gapless {

namespace {

using namespace std::chrono_literals;
using LoadResult = Result<std::unique_ptr<Engine>>;

constexpr auto kTick = 1000ms;  // an end of the server that nobody asked for is noticed within it
constexpr auto kStatsEvery = 5s;
constexpr auto kProgressEvery = 2s;   // anything longer says that it is still going on
constexpr auto kEngineGrace = 500ms;  // for the step being computed, once nobody waits for it any more

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A line for people; where machines read the log, one of the log.
void tell(const LogArgs& log, const std::string& line) {
  if (log.json) {
    spdlog::info("{}", line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

// Tells of progress while the model loads; nullopt: a signal came first.
std::optional<LoadResult> load(const ServeArgs& args, const EngineOptions& options, Signals& signals) {
  std::future<LoadResult> loading = std::async(std::launch::async, [&] { return Engine::create(options); });
  const Clock::time_point begin = Clock::now();
  Clock::time_point next_line = begin + kProgressEvery;
  while (loading.wait_for(20ms) != std::future_status::ready) {
    if (signals.take() != 0) return std::nullopt;
    if (Clock::now() < next_line) continue;
    tell(args.log, fmt::format("loading {}: {:.0f} s", options.model_path, seconds_since(begin)));
    next_line += kProgressEvery;
  }
  return loading.get();
}

class ServeRun {
 public:
  ServeRun(const ServeArgs& args, Engine& engine, HttpServer& server, Signals& signals)
      : args_(args),
        engine_(engine),
        server_(server),
        signals_(signals),
        sim_(dynamic_cast<const SimDevice*>(engine.parts().device.get())) {}

  int run() {
    std::future<void> stopped = std::async(std::launch::async, [this] { server_.wait(); });
    Clock::time_point last_stats = Clock::now();
    while (stopped.wait_for(0s) != std::future_status::ready) {
      if (signals_.wait(-1, draining_ ? 20ms : kTick) && signals_.take() != 0) on_signal();
      const SchedulerStats stats = engine_.scheduler().stats();
      if (Clock::now() - last_stats < kStatsEvery) continue;
      const std::string line =
          stats_line_.next(stats, seconds_since(last_stats), sim_ ? sim_->stats() : SimDevice::Stats{});
      if (!line.empty()) spdlog::info("{}", line);
      last_stats = Clock::now();
    }
    tell(args_.log, "stopped: " + end_summary(engine_.scheduler().stats(), server_.stats().requests));
    if (const Result<ProfileReport> profile = engine_.profile(); profile.is_ok())
      tell(args_.log, profile->text);
    return draining_ ? kExitOk : kExitRuntime;
  }

 private:
  void on_signal() {
    if (!draining_) {
      notify_service_manager("STOPPING=1");
      engine_.begin_drain();
      const size_t open = engine_.open_requests();
      const std::string rest =
          open == 0 ? ""
                    : fmt::format(": {} requests may finish within {} s; a second signal stops at once", open,
                                  args_.shutdown_timeout);
      tell(args_.log, "stopping" + rest);
    }
    draining_ = true;
    server_.shutdown();
  }

  const ServeArgs& args_;
  Engine& engine_;
  HttpServer& server_;
  Signals& signals_;
  const SimDevice* const sim_;  // null: the device is real
  StatsLine stats_line_;
  bool draining_ = false;
};

// Ends the process although threads are at work whose results nobody wants any more: a load, or a step
// (minutes, when prompts are not cut).
[[noreturn]] void abandon(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int run_serve(const ServeArgs& args) {
  Result<EngineOptions> options = engine_options(args.engine);
  if (!options) return fail(kExitUsage, options.status());
  options->profile = args.profile;
  Result<ServerConfig> config = server_config(args);
  if (!config) return fail(kExitUsage, config.status());
  Signals signals;
  Result<std::unique_ptr<HttpServer>> server = HttpServer::create(*config);
  if (!server) return fail(kExitRuntime, server.status());
  const Clock::time_point begin = Clock::now();
  std::optional<LoadResult> engine = load(args, *options, signals);
  if (!engine) {
    tell(args.log, "stopped while loading");
    abandon(kExitOk);  // loading cannot be interrupted, and nothing else is to be saved
  }
  if (!*engine) return fail(exit_code_of(engine->status()), engine->status());
  for (const std::string& line :
       start_banner(args, ***engine, (*server)->urls(), !config->api_keys.empty(), seconds_since(begin))) {
    tell(args.log, line);
  }
  (*server)->set_engine(***engine);
  notify_service_manager("READY=1");
  const int code = ServeRun(args, ***engine, **server, signals).run();
  server->reset();  // before the engine it uses
  std::future<void> stopped = std::async(std::launch::async, [&] { (**engine)->stop(); });
  if (stopped.wait_for(kEngineGrace) != std::future_status::ready) abandon(code);
  return code;
}

}  // namespace gapless
