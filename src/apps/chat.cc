// `gapless chat`: an engine in this process, and a conversation in the terminal or through a pipe.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/answer_queue.h"
#include "apps/cli.h"
#include "apps/signals.h"
#include "engine/engine.h"

namespace gapless {

namespace {

using Json = nlohmann::ordered_json;
constexpr auto kForEver = std::chrono::milliseconds(-1);

// Lines from standard input, given up when a signal comes.
class LineReader {
 public:
  enum class Got { kLine, kEnd, kSignal };
  Got next(Signals& signals, std::string& line) {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Got::kLine;
      }
      if (signals.wait(STDIN_FILENO, kForEver)) return signals.take(), Got::kSignal;
      char bytes[4096];
      const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
      if (n <= 0) {  // the last line may lack its newline
        line = std::exchange(buffer_, {});
        return line.empty() ? Got::kEnd : Got::kLine;
      }
      buffer_.append(bytes, size_t(n));
    }
  }

 private:
  std::string buffer_;
};

class Chat {
 public:
  Chat(const ChatArgs& args, Engine& engine, Signals& signals)
      : args_(args),
        engine_(engine),
        signals_(signals),
        on_terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    reset();
  }

  int run() {
    if (on_terminal_)
      std::puts(
          "Ctrl-C stops an answer, and at the prompt ends. /reset forgets the conversation, /exit ends.");
    LineReader reader;
    for (std::string line;;) {
      if (on_terminal_) std::fputs("\n> ", stdout), std::fflush(stdout);
      const LineReader::Got got = reader.next(signals_, line);
      if (got != LineReader::Got::kLine || line == "/exit") break;
      if (line == "/reset") {
        reset();
      } else if (line.find_first_not_of(" \t\r") != std::string::npos) {
        turn(line);
      }
    }
    if (on_terminal_) std::puts("");
    return failures_ == 0 || on_terminal_ ? kExitOk : kExitRuntime;
  }

 private:
  void reset() {
    messages_ = Json::array();
    if (!args_.system.empty()) messages_.push_back({{"role", "system"}, {"content", args_.system}});
  }

  GenerateRequest request() const {
    GenerateRequest r;
    ChatPrompt prompt;
    prompt.messages = messages_.dump(-1, ' ', false, Json::error_handler_t::replace);
    r.prompt = std::move(prompt);
    r.sampling.temperature = float(args_.temperature);
    r.sampling.top_p = float(args_.top_p);
    if (args_.seed >= 0) r.seed = uint64_t(args_.seed);
    if (args_.max_tokens > 0) r.max_tokens = args_.max_tokens;
    return r;
  }

  void turn(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    auto queue = std::make_shared<AnswerQueue>();
    answer_.clear();
    error_ = {};
    done_ = false;
    const auto begin = std::chrono::steady_clock::now();
    const RequestId id = engine_.submit(request(), queue);
    while (!done_) {
      if (signals_.wait(queue->fd(), kForEver)) {
        signals_.take();
        engine_.abort(id);
      }
      for (ResponseEvent& event : queue->take()) std::visit([this](auto& e) { on(e); }, event);
    }
    std::puts("");
    finish_turn(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }

  void finish_turn(double seconds) {
    if (!error_.is_ok() && error_.code() != StatusCode::kCancelled) {
      ++failures_;
      fail(kExitRuntime, error_);
    }
    if (answer_.empty() && !error_.is_ok()) {
      messages_.erase(messages_.size() - 1);  // an answer that never came leaves no question either
      return;
    }
    messages_.push_back({{"role", "assistant"}, {"content", answer_}});
    if (on_terminal_ && error_.is_ok()) {
      std::printf("\033[2m[%d prompt tokens, %d of them cached; %d generated in %.1f s]\033[0m\n",
                  usage_.prompt_tokens, usage_.cached_tokens, usage_.completion_tokens, seconds);
    }
  }

  void on(const Accepted&) {}
  void on(const PromptScored&) {}
  void on(const ChoiceDelta& delta) {
    answer_ += delta.text;
    std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
    std::fflush(stdout);
    if (delta.finish && delta.finish->reason == FinishReason::kError) error_ = delta.finish->status;
  }
  void on(const Done& done) {
    usage_ = done.usage;
    done_ = true;
  }
  void on(const Failed& failed) {
    error_ = failed.status;
    done_ = true;
  }

  const ChatArgs& args_;
  Engine& engine_;
  Signals& signals_;
  const bool on_terminal_;
  Json messages_;
  std::string answer_;
  Status error_;
  Usage usage_;
  bool done_ = false;
  int failures_ = 0;
};

}  // namespace

int run_chat(const ChatArgs& args) {
  Result<EngineOptions> options = engine_options(args.engine);
  if (!options) return fail(kExitUsage, options.status());
  Signals signals;
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return fail(exit_code_of(engine.status()), engine.status());
  if (!(*engine)->model().has_chat_template)
    return fail(
        kExitRuntime,
        Status::invalid(
            "this model file has no chat template: give one with --chat-template NAME or FILE (built in: {})",
            fmt::join(builtin_chat_templates(), ", ")));
  return Chat(args, **engine, signals).run();
}

}  // namespace gapless
