#include "apps/selftest.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>

#include "apps/cli.h"
#include "apps/progress.h"
#include "device/device.h"

namespace gapless {

namespace {

constexpr size_t kShownDifferences = 5;
constexpr double kProgressSeconds = 1;
constexpr double kLineSeconds = 5;  // where no terminal reads the progress

// A float exactly: its value to read, its bits to compare.
std::string exact(float value) {
  return fmt::format("{:.6f} (0x{:08x})", value, std::bit_cast<uint32_t>(value));
}

std::string describe(const TokenText& token, bool logprobs) {
  std::string out = fmt::format("token {}", token.id);
  if (!logprobs) return out;
  out += " logprob " + exact(token.logprob);
  for (const TokenText& other : token.top) out += fmt::format(", {} {}", other.id, exact(other.logprob));
  return out;
}

std::string describe(const Finish& finish) {
  static constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};
  std::string out = kReasons[size_t(finish.reason)];
  if (const auto* id = std::get_if<int32_t>(&finish.matched)) out += fmt::format(", token {}", *id);
  if (const auto* text = std::get_if<std::string>(&finish.matched)) out += ", string " + *text;
  return out + finish.status.message();
}

// Collects one request's answer.
class AnswerSink : public ResponseSink {
 public:
  AnswerSink(const GenerateRequest& request, std::atomic<size_t>& ended)
      : logprobs_(request.sampling.top_logprobs >= 0), ended_(ended) {
    answer_.choices.resize(size_t(request.n));
  }
  void on_event(ResponseEvent event) override {
    if (const auto* scored = std::get_if<PromptScored>(&event))
      for (const TokenText& token : scored->tokens) answer_.prompt.push_back(describe(token, true));
    if (const auto* delta = std::get_if<ChoiceDelta>(&event)) take(*delta);
    const auto* failed = std::get_if<Failed>(&event);
    if (failed) answer_.error = failed->status.message();
    if (!failed && !std::holds_alternative<Done>(event)) return;
    ++ended_;
    done_.set();
  }
  bool done() const { return done_.ready(); }
  RequestAnswer& wait() {
    (void)done_.wait();
    return answer_;
  }

 private:
  void take(const ChoiceDelta& delta) {
    ChoiceAnswer& choice = answer_.choices.at(size_t(delta.index));
    for (const TokenText& token : delta.tokens) choice.tokens.push_back(describe(token, logprobs_));
    choice.text += delta.text;
    if (delta.finish) choice.finish = describe(*delta.finish);
  }

  const bool logprobs_;
  std::atomic<size_t>& ended_;
  RequestAnswer answer_;
  HostEvent done_;
};

// Where two lists of tokens part.
std::string first_difference(const std::vector<std::string>& a, const std::vector<std::string>& b,
                             const std::string& what) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string x = i < a.size() ? a[i] : "nothing", y = i < b.size() ? b[i] : "nothing";
    if (x != y) return fmt::format("{} {}:\n    {}\n    {}", what, i, x, y);
  }
  return "";
}

class Selftest {
 public:
  Selftest(EngineApi& engine, const std::vector<GenerateRequest>& requests,
           const std::function<void()>& empty_cache)
      : engine_(engine), requests_(requests), empty_cache_(empty_cache) {}

  int run() {
    std::vector<RequestAnswer> first;
    size_t different = 0;
    for (const SelftestRun& run : kSelftestRuns) {
      empty_cache_();
      if (!switch_loop_and_wait(engine_, run.loop))
        return fail(kExitRuntime, Status::internal("the engine has stopped"));
      std::vector<RequestAnswer> answers = timed(run);
      if (first.empty()) {
        first = std::move(answers);
      } else {
        different += compare(first, answers, run.name);
      }
    }
    return verdict(first, different);
  }

 private:
  std::vector<RequestAnswer> timed(const SelftestRun& run) {
    const double begin = steady_seconds();
    const auto text = [&](size_t ended) {
      return fmt::format("{}: {} of {}, {:.0f} s", run.name, ended, requests_.size(),
                         steady_seconds() - begin);
    };
    Progress progress(stderr, stderr_is_terminal(), kLineSeconds);
    std::vector<RequestAnswer> answers =
        run_requests(engine_, requests_, run.together, [&](size_t ended) { progress.show(text(ended)); });
    progress.finish(text(answers.size()));
    return answers;
  }
  static size_t compare(const std::vector<RequestAnswer>& a, const std::vector<RequestAnswer>& b,
                        const std::string& name) {
    size_t different = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const std::string text = difference(i, a[i], b[i]);
      if (text.empty()) continue;
      if (++different <= kShownDifferences)
        std::printf("DIFFERENT: alone (first line), %s (second line)\n  %s\n", name.c_str(), text.c_str());
    }
    if (different > kShownDifferences) std::printf("and %zu more\n", different - kShownDifferences);
    return different;
  }
  int verdict(const std::vector<RequestAnswer>& answers, size_t different) const {
    size_t tokens = 0, errors = 0;
    for (const RequestAnswer& answer : answers) {
      errors += !answer.error.empty();
      for (const ChoiceAnswer& choice : answer.choices) tokens += choice.tokens.size();
    }
    if (different > 0) {
      std::printf("FAILED: answers depend on how they are computed\n");
      return kExitRuntime;
    }
    if (errors > 0) {
      const auto it =
          std::find_if(answers.begin(), answers.end(), [](const auto& a) { return !a.error.empty(); });
      return fail(kExitRuntime, Status::internal("{} of {} requests failed, the first with: {}", errors,
                                                 answers.size(), it->error));
    }
    fmt::print(
        "OK: {} requests, {} tokens: alone, together and overlapped the same, bit for bit; fingerprint "
        "{:016x}\n",
        answers.size(), tokens, fingerprint(answers));
    return kExitOk;
  }

  EngineApi& engine_;
  const std::vector<GenerateRequest>& requests_;
  const std::function<void()>& empty_cache_;
};

std::vector<int32_t> usable_ids(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (!tokenizer.is_control(id)) ids.push_back(id);
  return ids;
}

}  // namespace

std::string difference(size_t index, const RequestAnswer& a, const RequestAnswer& b) {
  if (a == b) return "";
  const auto of_request = [&](const std::string& text) { return fmt::format("request {}, {}", index, text); };
  const auto both = [&](const std::string& what, const std::string& x, const std::string& y) {
    return of_request(fmt::format("{}:\n    {}\n    {}", what, x, y));
  };
  if (a.error != b.error) return both("error", a.error, b.error);
  if (const std::string text = first_difference(a.prompt, b.prompt, "prompt logprob"); !text.empty())
    return of_request(text);
  for (size_t i = 0; i < std::min(a.choices.size(), b.choices.size()); ++i) {
    const ChoiceAnswer &x = a.choices[i], &y = b.choices[i];
    const std::string choice = fmt::format("choice {}, ", i);
    if (const std::string text = first_difference(x.tokens, y.tokens, choice + "token"); !text.empty())
      return of_request(text);
    if (x.finish != y.finish) return both(choice + "finish", x.finish, y.finish);
    if (x.text != y.text) return both(choice + "text", x.text, y.text);
  }
  return both("number of choices", std::to_string(a.choices.size()), std::to_string(b.choices.size()));
}

// FNV-1a. A byte that no text has ends each text, so that none can lend its end to the next.
uint64_t fingerprint(const std::vector<RequestAnswer>& answers) {
  uint64_t hash = 14695981039346656037ull;
  const auto byte = [&](uint8_t value) { hash = (hash ^ value) * 1099511628211ull; };
  const auto add = [&](const std::string& text) {
    for (const char c : text) byte(uint8_t(c));
    byte(0xff);
  };
  for (const RequestAnswer& answer : answers) {
    for (const std::string& token : answer.prompt) add(token);
    for (const ChoiceAnswer& choice : answer.choices) {
      for (const std::string& token : choice.tokens) add(token);
      add(choice.text);
      add(choice.finish);
    }
    add(answer.error);
  }
  return hash;
}

std::vector<RequestAnswer> run_requests(EngineApi& engine, const std::vector<GenerateRequest>& requests,
                                        bool together, const std::function<void(size_t)>& progress) {
  std::atomic<size_t> ended{0};
  std::vector<std::shared_ptr<AnswerSink>> sinks;
  double shown = 0;
  const auto wait = [&](AnswerSink& sink) {
    while (!sink.done()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (steady_seconds() - shown < kProgressSeconds) continue;
      shown = steady_seconds();
      progress(ended);
    }
  };
  for (const GenerateRequest& request : requests) {
    sinks.push_back(std::make_shared<AnswerSink>(request, ended));
    engine.submit(request, sinks.back());
    if (!together) wait(*sinks.back());
  }
  std::vector<RequestAnswer> answers;
  for (const auto& sink : sinks) {
    wait(*sink);
    answers.push_back(std::move(sink->wait()));
  }
  return answers;
}

int selftest(EngineApi& engine, const std::vector<GenerateRequest>& requests,
             const std::function<void()>& empty_cache) {
  return Selftest(engine, requests, empty_cache).run();
}

int run_selftest(const SelftestArgs& args) {
  if (const Status status = check_runs_both_loops(args.engine); !status.is_ok())
    return fail(kExitUsage, status);
  Result<EngineOptions> options = engine_options(args.engine);
  if (!options) return fail(kExitUsage, options.status());
  options->scheduler.max_queued_requests =
      std::max(options->scheduler.max_queued_requests, 8 * args.requests);
  Result<std::unique_ptr<Engine>> engine = Engine::create(*options);
  if (!engine) return fail(exit_code_of(engine.status()), engine.status());
  const LoadedModel& parts = (*engine)->parts();
  const std::vector<GenerateRequest> requests =
      selftest_requests(args.requests, args.seed, parts.sizing.scheduler.chunked_prefill_size,
                        usable_ids(*parts.tokenizer), parts.facts.context_length);
  return selftest(**engine, requests, [&] { flush_cache_and_wait(**engine); });
}

}  // namespace gapless
