#include "apps/cli.h"

#include <cstdio>
#include <filesystem>

#include "base/log.h"
#include "engine/loader.h"

namespace gapless {

namespace {

// The subcommand that was meant, as deep as it was parsed.
const CLI::App* deepest(const CLI::App* app) {
  for (auto sub = app->get_subcommands(); !sub.empty(); sub = app->get_subcommands()) app = sub.front();
  return app;
}

std::string full_name(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* parent = app.get_parent(); parent; parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  return name;
}

std::string nearest_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return nearest_word(word, names);
}

// What only the script in the repository can do: it fetches and builds.
std::string dev_command_message(const CLI::App& app, const std::string& word) {
  static constexpr std::pair<const char*, std::string_view> kDevCommands[] = {
      {"gapless bench", "peers"}, {"gapless", "build"}, {"gapless", "fmt"},
      {"gapless", "lint"},        {"gapless", "model"}, {"gapless", "test"}};
  const std::string name = full_name(app);
  for (const auto& [parent, command] : kDevCommands) {
    if (name != parent || word != command) continue;
    const std::string called = fmt::format("{} {}", name, word);
    return fmt::format("`{}` is a command of the script in the repository: ./dev{}", called,
                       called.substr(called.find(' ')));
  }
  return {};
}

// `bench overlp`: taken for the FILE of a command that has subcommands too. Empty: there is no such mistake.
std::string mistyped_command_message(const CLI::App& app) {
  const CLI::Option* option = app.get_option_no_throw("FILE");
  if (!option || option->results().empty()) return {};
  const std::string file = option->results().front(), near = nearest_command(app, file);
  std::error_code error;
  if (std::filesystem::exists(file, error)) return {};
  if (std::string text = dev_command_message(app, file); !text.empty()) return text;
  if (near.empty()) return {};
  return fmt::format("there is no file '{}': did you mean `{} {}`?", file, full_name(app), near);
}

std::string unknown_argument_message(const CLI::App& app, const std::string& argument) {
  if (std::string text = dev_command_message(app, argument); !text.empty()) return text;
  const bool is_flag = argument.starts_with("-");
  const std::string near = is_flag ? nearest_flag(app, argument) : nearest_command(app, argument);
  return fmt::format("unknown {} '{}'{}", is_flag ? "flag" : "argument", argument,
                     near.empty() ? "" : fmt::format(": did you mean {}?", near));
}

// CLI11's own words, except where they name its parts instead of ours.
std::string parse_error_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error))
    return text.substr(0, text.find(':')) + " needs a value";
  if (!dynamic_cast<const CLI::RequiredError*>(&error)) return text;
  if (app.get_parent() == nullptr) return "give a command: serve, chat, inspect, bench, trace or selftest";
  if (app.get_name() == "trace") return "give FILE, a trace as GET /trace answers it";
  return std::string("give FILE, the path of a .gguf model") +
         (app.get_option_no_throw("--device") ? ", or --device sim:PROFILE, which needs none" : "");
}

int usage_error(const CLI::App& app, const std::string& message) {
  std::fprintf(stderr, "gapless: %s\n(%s --help lists all flags)\n", message.c_str(), full_name(app).c_str());
  return kExitUsage;
}

void start_logging(const LogArgs& args) {
  init_logging(spdlog::level::from_str(args.verbose ? "debug" : args.level), args.json);
}

int dispatch(Cli& cli) {
  if (cli.command("serve")->parsed()) return start_logging(cli.serve.log), run_serve(cli.serve);
  if (cli.command("chat")->parsed()) return start_logging(cli.chat.log), run_chat(cli.chat);
  if (cli.command("inspect")->parsed()) return start_logging({}), run_inspect(cli.inspect);
  if (cli.command("selftest")->parsed()) return start_logging(cli.selftest.log), run_selftest(cli.selftest);
  if (cli.command("trace")->parsed()) return run_trace(cli.trace);
  if (cli.command("bench")->get_subcommand("serve")->parsed()) return run_bench_serve(cli.bench_serve);
  if (cli.command("bench")->get_subcommand("kernels")->parsed())
    return start_logging({}), run_bench_kernels(cli.bench_kernels);
  if (cli.command("bench")->get_subcommand("attention")->parsed())
    return start_logging({}), run_bench_attention(cli.bench_attention);
  if (cli.command("bench")->get_subcommand("overlap")->parsed())
    return start_logging(cli.bench_overlap.log), run_bench_overlap(cli.bench_overlap);
  if (cli.command("bench")->get_subcommand("sampling")->parsed())
    return start_logging({}), run_bench_sampling(cli.bench_sampling);
  return start_logging(cli.bench.log), run_bench(cli.bench);
}

}  // namespace

Cli::Cli() {
  app.require_subcommand(1);
  app.set_version_flag("--version", GAPLESS_VERSION, "Print the version.");
  app.set_help_flag("-h,--help", "Print this text.");
  add_serve_flags(*app.add_subcommand("serve", "Serve a model over HTTP, with OpenAI's API."), serve);
  add_chat_flags(*app.add_subcommand("chat", "Talk to a model in the terminal."), chat);
  add_inspect_flags(
      *app.add_subcommand("inspect", "Show what is in a model file and the memory it will need."), inspect);
  add_trace_flags(*app.add_subcommand("trace", "Say what a trace of a server shows, or draw it."), trace);
  add_selftest_flags(
      *app.add_subcommand("selftest", "Check that answers do not depend on how they are scheduled."),
      selftest);
  CLI::App* bench_app = app.add_subcommand("bench",
                                           "Measure a model's speed; `bench serve` loads a running server, "
                                           "`bench overlap` compares the two loops, `bench kernels` "
                                           "measures matmuls, `bench attention` attention, "
                                           "`bench sampling` the sampler.");
  add_bench_serve_flags(*bench_app->add_subcommand("serve", "Load a running server and measure it."),
                        bench_serve);
  add_bench_overlap_flags(
      *bench_app->add_subcommand("overlap", "Compare the overlap loop with the normal one, in alternation."),
      bench_overlap);
  add_bench_sampling_flags(
      *bench_app->add_subcommand("sampling", "Measure the sampler alone, without a model."), bench_sampling);
  add_bench_kernels_flags(*bench_app->add_subcommand("kernels", "Measure the matmul of every weight format."),
                          bench_kernels);
  add_bench_attention_flags(
      *bench_app->add_subcommand("attention", "Measure attention with every type of KV cache."),
      bench_attention);
  add_bench_flags(*bench_app, bench);
}

int run_cli(int argc, const char* const* argv) {
  Cli cli;
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // `help bench serve` is `bench serve --help`
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  try {
    cli.app.parse(int(words.size()), words.data());
  } catch (const CLI::CallForHelp&) {
    std::fputs(help_text(*deepest(&cli.app)).c_str(), stdout);
    return kExitOk;
  } catch (const CLI::CallForVersion&) {
    std::puts("gapless " GAPLESS_VERSION);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    const CLI::App& app = *deepest(&cli.app);
    if (const std::string text = mistyped_command_message(app); !text.empty()) return usage_error(app, text);
    const std::vector<std::string> left = cli.app.remaining(true);
    for (const std::string& argument : left) {
      if (argument != "--") return usage_error(app, unknown_argument_message(app, argument));
    }
    return usage_error(app, parse_error_message(app, error));
  }
  const CLI::App& app = *deepest(&cli.app);
  if (const std::string text = mistyped_command_message(app); !text.empty()) return usage_error(app, text);
  return dispatch(cli);
}

int exit_code_of(const Status& status) {
  return status.error_code() == kUsageErrorCode ? kExitUsage : kExitRuntime;
}

int fail(int exit_code, const Status& status) {
  std::fprintf(stderr, "gapless: %s\n", status.message().c_str());
  return exit_code;
}

}  // namespace gapless
