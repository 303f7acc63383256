// The figures of bench overlap on hand-made numbers, and both commands on the simulated device.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/bench_overlap.h"
#include "apps/cli.h"
#include "apps/progress.h"
#include "apps/selftest.h"
#include "apps/steady_load.h"

namespace gapless {
namespace {

TEST(Statistics, StudentsTAgreesWithTheTables) {
  EXPECT_NEAR(student_t_975(1), 12.706, 1e-3);
  EXPECT_NEAR(student_t_975(9), 2.262, 1e-3);
  EXPECT_NEAR(student_t_975(11), 2.201, 1e-3);
  EXPECT_NEAR(student_t_975(30), 2.042, 1e-3);
  EXPECT_NEAR(student_t_975(100), 1.984, 1e-3);
}

TEST(Statistics, TheIntervalOfARatioIsThatOfTheLogarithms) {
  // b / a: e^0.1, e^0.2, e^0.3; mean 0.2, standard deviation 0.1, so 0.2 +- 4.303 x 0.1 / sqrt(3).
  const RatioInterval r = ratio_interval({1, 2, 4}, {std::exp(0.1), 2 * std::exp(0.2), 4 * std::exp(0.3)});
  EXPECT_EQ(r.pairs, 3);
  EXPECT_NEAR(std::log(r.ratio), 0.2, 1e-12);
  EXPECT_NEAR(std::log(r.low), 0.2 - 4.303 * 0.1 / std::sqrt(3), 1e-9);
  EXPECT_NEAR(std::log(r.high), 0.2 + 4.303 * 0.1 / std::sqrt(3), 1e-9);
}

TEST(Statistics, PairsThatSayNothingAreLeftOut) {
  const RatioInterval r = ratio_interval({1, 0, 3, 5}, {2, 1, 0, 10});
  EXPECT_EQ(r.pairs, 2);
  EXPECT_DOUBLE_EQ(r.ratio, 2);
  EXPECT_DOUBLE_EQ(r.low, 2);
  EXPECT_DOUBLE_EQ(r.high, 2);
  const RatioInterval one = ratio_interval({1}, {2});
  EXPECT_DOUBLE_EQ(one.ratio, 2);
  EXPECT_FALSE(one.has_interval());
  EXPECT_EQ(ratio_interval({}, {}).pairs, 0);
}

TEST(Statistics, AConclusionNeedsPairsAndAnIntervalWithoutOne) {
  const auto of = [](int pairs, double low, double high) {
    return conclusion({.pairs = pairs, .ratio = 1, .low = low, .high = high}, "faster", "slower");
  };
  EXPECT_EQ(of(10, 1.01, 1.05), "faster");
  EXPECT_EQ(of(10, 0.9, 0.99), "slower");
  EXPECT_TRUE(of(10, 0.99, 1.02).starts_with("no conclusion: the interval includes 1")) << of(10, 0.99, 1.02);
  EXPECT_TRUE(of(4, 1.01, 1.05).starts_with("no conclusion: 4 pairs are too few")) << of(4, 1.01, 1.05);
  EXPECT_TRUE(of(1, 0, 0).starts_with("no conclusion: 1 pair is too few")) << of(1, 0, 0);
}

std::string shown(bool terminal, double seconds) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, terminal, seconds);
    progress.show("12 of 20");
    progress.show("3 of 20");
    progress.finish("20 of 20");
    progress.show("again");
  }
  std::rewind(file);
  char text[200];
  const size_t size = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  return {text, size};
}

TEST(ProgressLine, IsWrittenOverOnATerminalOnly) {
  EXPECT_EQ(shown(true, 3600), "12 of 20\r        \r3 of 20\r       \r20 of 20\nagain\r     \r");
  EXPECT_EQ(shown(false, 3600), "12 of 20\n20 of 20\n");
  EXPECT_EQ(shown(false, 0), "12 of 20\n3 of 20\n20 of 20\nagain\n");
  EXPECT_EQ(shown(false, Progress::kNoLines), "");
}

// `steps` decode steps of `step` microseconds with `gap` microseconds between them.
LoopSlice made_slice(double begin, int steps, double step, double gap, int64_t tokens) {
  LoopSlice slice;
  slice.begin = begin;
  for (int i = 0; i < steps; ++i) {
    const double at = begin * 1e6 + i * (step + gap);
    slice.device.push_back({.name = "decode", .begin = at, .end = at + step});
  }
  slice.end = begin + steps * (step + gap) * 1e-6;
  slice.steps = steps;
  slice.tokens = tokens;
  slice.cpu = {{"scheduler", steps * 20e-6}, {"forward", steps * 5e-6}};
  return slice;
}

TEST(OverlapFigures, OfHandMadeSlices) {
  const std::vector<LoopSlice> normal{made_slice(1, 100, 900, 100, 1000), made_slice(3, 100, 900, 100, 1000)};
  const std::vector<LoopSlice> overlap{made_slice(2, 100, 900, 0, 1000), made_slice(4, 100, 900, 0, 1000)};
  const OverlapReport r = overlap_report(normal, overlap).value();
  EXPECT_NEAR(r.normal.tokens_s, 10'000, 1e-3);
  EXPECT_NEAR(r.normal.device_limited, 1e6 / 90, 1e-3);
  EXPECT_NEAR(r.normal.busy, 0.9, 1e-9);
  EXPECT_NEAR(r.normal.steady.busy, 100 * 900 / (100 * 1000 - 100.0), 1e-6);
  EXPECT_EQ(r.normal.steady.stretches, 2u);  // the time between two slices is no gap
  EXPECT_EQ(r.normal.gaps.count, 198u);
  EXPECT_NEAR(r.normal.gaps.p99, 100, 1e-3);
  EXPECT_NEAR(r.overlap.gaps.max, 0, 1e-3);
  EXPECT_NEAR(r.overlap.busy, 1, 1e-9);
  EXPECT_NEAR(r.overlap.cpu_us.at("scheduler"), 20, 1e-9);
  EXPECT_NEAR(r.ratio.ratio, 1 / 0.9, 1e-9);
  EXPECT_NEAR(r.ratio_from_gaps, 1 + 99.0 / 900, 1e-6);  // 198 gaps after 200 steps
  EXPECT_NEAR(r.of_device_limit, 1, 1e-6);
  EXPECT_FALSE(overlap_report({LoopSlice{}}, overlap).is_ok());
}

TEST(OverlapReportText, SaysWhenASimulatedRunIsVoid) {
  const std::vector<LoopSlice> slices{made_slice(1, 100, 900, 0, 1000)};
  OverlapReport r = overlap_report(slices, slices).value();
  EXPECT_EQ(overlap_text({}, r).find("simulated device"), std::string::npos);
  r.sim_overrun = 0.0005;
  EXPECT_EQ(overlap_text({}, r).find("VOID"), std::string::npos);
  r.sim_overrun = 0.002;
  EXPECT_NE(overlap_text({}, r).find("VOID"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(overlap_json({}, r)).at("void").get<bool>());
}

TEST(OverlapReportText, SaysHowFarOneMayConclude) {
  const std::vector<LoopSlice> slices{made_slice(1, 100, 900, 0, 1000)};
  OverlapReport r = overlap_report(slices, slices).value();
  std::string text = overlap_text({}, r);
  EXPECT_NE(text.find("tokens/s: 1.0000 (1 pair)\n  no conclusion: 1 pair is too few"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("inf"), std::string::npos) << text;
  EXPECT_NE(text.find("rows are totals"), std::string::npos) << text;
  EXPECT_TRUE(nlohmann::json::parse(overlap_json({}, r)).at("overlap_over_normal").at("low").is_null());
  r.ratio = {.pairs = 10, .ratio = 1.02, .low = 1.01, .high = 1.03};
  text = overlap_text({}, r);
  EXPECT_NE(text.find("1.0100 to 1.0300 (geometric mean of 10 pairs, Student's t)\n  overlap is faster\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(nlohmann::json::parse(overlap_json({}, r)).at("overlap_over_normal").at("low"), 1.01);
  r.sim_overrun = 0.5;
  EXPECT_EQ(overlap_text({}, r).find("overlap is faster"), std::string::npos);
  const PoissonReport later{.rate = 3, .normal = {}, .overlap = {}, .ratio = r.ratio};
  EXPECT_NE(poisson_text(later).find("comes later with overlap"), std::string::npos) << poisson_text(later);
}

TEST(SteadyLoadShape, TheFirstRequestsLookAsIfTheyHadRunForAWhile) {
  const LoadShape shape{.open = 4, .prompt_tokens = 10, .decode_tokens = 100};
  const ShapedLength first = shaped_length(shape, 0), last = shaped_length(shape, 3),
                     later = shaped_length(shape, 4);
  EXPECT_EQ(first.decode, 25);
  EXPECT_EQ(first.prompt, 85);
  EXPECT_EQ(last.decode, 100);
  EXPECT_EQ(last.prompt, 10);
  EXPECT_EQ(later.decode, 100);
  EXPECT_EQ(later.prompt, 10);
}

// Runs the program; its output.
std::string run(std::vector<const char*> argv, int expected) {
  argv.insert(argv.begin(), "gapless");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_cli(int(argv.size()), argv.data()), expected);
  const std::string err = testing::internal::GetCapturedStderr();
  return testing::internal::GetCapturedStdout() + err;
}

void expect_both_loops_worked(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text.substr(0, text.find('\n')));
  for (const char* loop : {"normal", "overlap"}) {
    EXPECT_GT(json.at(loop).at("tokens_s").get<double>(), 0) << text;
    EXPECT_GT(json.at(loop).at("steps").get<int>(), 0) << text;
    EXPECT_GT(json.at(loop).at("host_cpu_us_per_step").get<double>(), 0) << text;
  }
  // On a busy machine a short slice may pass without a step; its pair is left out.
  EXPECT_GE(json.at("overlap_over_normal").at("pairs"), 1);
}

TEST(BenchOverlap, RunsInThisProcessAndOverHttp) {
  for (const char* sink : {"inproc", "http"}) {
    SCOPED_TRACE(sink);
    expect_both_loops_worked(run({"bench",
                                  "overlap",
                                  "--device",
                                  "sim:zero",
                                  "--batch",
                                  "4",
                                  "--decode-len",
                                  "32",
                                  "--pairs",
                                  "2",
                                  "--slice-seconds",
                                  "0.2",
                                  "--logprobs",
                                  "1",
                                  "--penalties",
                                  "--max-total-tokens",
                                  "65536",
                                  "--sink",
                                  sink,
                                  "--json"},
                                 kExitOk));
  }
}

// Before a model is loaded or anything measured: /dev/null is no model.
TEST(BenchCommands, ATraceThatCannotBeWrittenIsToldAtOnce) {
  for (const char* command : {"bench", "bench overlap"}) {
    std::vector<const char*> argv{"bench", "/dev/null", "--trace", "/nonexistent/t.json"};
    if (std::string(command) == "bench overlap") argv.insert(argv.begin() + 1, "overlap");
    const std::string text = run(argv, kExitRuntime);
    EXPECT_NE(text.find("--trace /nonexistent/t.json: No such file"), std::string::npos) << text;
  }
}

TEST(BenchCommands, TheLoopIsNotToBeChosenWhereBothRun) {
  for (std::vector<const char*> argv : {std::vector<const char*>{"bench", "overlap"}, {"selftest"}}) {
    argv.insert(argv.end(), {"--device", "sim:zero", "--disable-overlap-schedule"});
    const std::string text = run(argv, kExitUsage);
    EXPECT_NE(text.find("--disable-overlap-schedule: this command runs both loops"), std::string::npos)
        << text;
  }
}

TEST(BenchOverlap, HoldsAQueueAndAFullTree) {
  expect_both_loops_worked(run({"bench",
                                "overlap",
                                "--device",
                                "sim:zero",
                                "--batch",
                                "4",
                                "--decode-len",
                                "64",
                                "--prompt-len",
                                "32",
                                "--queued",
                                "2000",
                                "--tree-tokens",
                                "20000",
                                "--pairs",
                                "2",
                                "--slice-seconds",
                                "0.2",
                                "--max-total-tokens",
                                "65536",
                                "--json"},
                               kExitOk));
}

TEST(BenchOverlap, ComparesFirstTokensUnderRandomArrivals) {
  const std::string text =
      run({"bench", "overlap", "--device", "sim:zero", "--batch", "4", "--decode-len", "8", "--poisson",
           "200", "--pairs", "2", "--slice-seconds", "0.1", "--max-total-tokens", "65536", "--json"},
          kExitOk);
  const nlohmann::json json = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(json.at("normal_ttft_us").at("count"), 40);
  EXPECT_EQ(json.at("overlap_ttft_us").at("count"), 40);
  EXPECT_GT(json.at("overlap_ttft_us").at("mean").get<double>(), 0);
}

TEST(SelftestCommand, FindsNothingOnAHealthyEngine) {
  const std::string text =
      run({"selftest", "--device", "sim:zero", "--requests", "100", "--max-total-tokens", "65536"}, kExitOk);
  EXPECT_NE(text.find("OK: 100 requests"), std::string::npos) << text;
  EXPECT_NE(text.find("\nalone: 100 of 100"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos) << text;  // no terminal reads it
}

TEST(SelftestCommand, TheFingerprintIsOfEveryAnswer) {
  const auto tail = [](std::vector<const char*> more) {
    std::vector<const char*> argv{"selftest", "--device", "sim:zero", "--max-total-tokens", "65536"};
    argv.insert(argv.end(), more.begin(), more.end());
    const std::string text = run(argv, kExitOk);
    return text.substr(text.find("fingerprint "), 28);
  };
  const std::string first = tail({"--requests", "20"});
  EXPECT_EQ(first.find_first_of("\n"), std::string::npos) << first;
  EXPECT_EQ(tail({"--requests", "20"}), first);
  EXPECT_NE(tail({"--requests", "20", "--seed", "2"}), first);

  std::vector<RequestAnswer> answers(2);
  answers[1].choices.push_back({.tokens = {"token 7 logprob -1.5"}, .text = "ab", .finish = "stop"});
  const uint64_t whole = fingerprint(answers);
  answers[1].choices[0].tokens[0].back() = '6';
  EXPECT_NE(fingerprint(answers), whole) << "one digit of one logprob";
  answers[1].choices[0] = {.tokens = {"token 7 logprob -1.5"}, .text = "abs", .finish = "top"};
  EXPECT_NE(fingerprint(answers), whole) << "a text that lends its end to the next";
}

// An engine that changes one bit of one logprob while the overlap loop is on.
class TamperingEngine : public EngineApi {
 public:
  TamperingEngine(Engine& engine, int request) : engine_(engine), request_(request) {}
  RequestId submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) override {
    if (overlap_ && count_++ == request_) sink = std::make_shared<Tamper>(std::move(sink));
    return engine_.submit(std::move(request), std::move(sink));
  }
  void abort(RequestId id) override { engine_.abort(id); }
  Status ready() const override { return engine_.ready(); }
  const ModelFacts& model() const override { return engine_.model(); }
  LoadStats load() const override { return engine_.load(); }
  MetricsRegistry& metrics() override { return engine_.metrics(); }
  Tracer& tracer() override { return engine_.tracer(); }
  Result<ProfileReport> profile() const override { return engine_.profile(); }
  void reset_profile() override { engine_.reset_profile(); }
  Result<std::vector<int32_t>> tokenize(const std::string& text, bool add, bool parse) const override {
    return engine_.tokenize(text, add, parse);
  }
  Result<std::string> detokenize(const std::vector<int32_t>& ids, bool skip) const override {
    return engine_.detokenize(ids, skip);
  }
  Result<RenderedChat> render_chat(const ChatPrompt& chat) const override {
    return engine_.render_chat(chat);
  }
  EventLoop event_loop() const override { return engine_.event_loop(); }
  bool switch_loop(EventLoop to, std::function<void()> switched) override {
    overlap_ = to == EventLoop::kOverlap;
    return engine_.switch_loop(to, std::move(switched));
  }
  bool flush_cache(std::function<void(int64_t)> flushed) override {
    return engine_.flush_cache(std::move(flushed));
  }
  bool take_snapshot(std::function<void(SchedulerSnapshot&&)> taken) override {
    return engine_.take_snapshot(std::move(taken));
  }
  bool run_on_text_pool(std::function<void()> job) override {
    return engine_.run_on_text_pool(std::move(job));
  }

 private:
  struct Tamper : ResponseSink {
    explicit Tamper(std::shared_ptr<ResponseSink> to) : to(std::move(to)) {}
    void on_event(ResponseEvent event) override {
      if (auto* delta = std::get_if<ChoiceDelta>(&event))
        for (TokenText& token : delta->tokens)
          if (tokens++ == 2) token.logprob = std::nextafter(token.logprob, 1.0f);
      to->on_event(std::move(event));
    }
    const std::shared_ptr<ResponseSink> to;
    int tokens = 0;
  };

  Engine& engine_;
  const int request_;
  bool overlap_ = false;
  int count_ = 0;
};

TEST(SelftestCommand, ShowsAPlantedDifference) {
  EngineOptions options;
  options.device = "sim:zero";
  options.scheduler.max_total_tokens = 65536;
  const std::unique_ptr<Engine> engine = Engine::create(options).value();
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 6; ++i) {
    LoadShape shape{.open = 1, .logprobs = 0};
    requests.push_back(shaped_request(shape, std::vector<int32_t>(10, 20 + i), 8));
  }
  TamperingEngine tampering(*engine, 3);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = selftest(tampering, requests, [&] { flush_cache_and_wait(*engine); });
  testing::internal::GetCapturedStderr();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, kExitRuntime);
  EXPECT_NE(text.find("together, overlap loop"), std::string::npos) << text;
  EXPECT_EQ(text.find("together, normal loop"), std::string::npos) << text;
  EXPECT_NE(text.find("request 3, choice 0, token 2:"), std::string::npos) << text;
  EXPECT_NE(text.find("FAILED"), std::string::npos) << text;
}

TEST(SelftestRequests, AreAFunctionOfTheSeedAndHaveEveryFeature) {
  const std::vector<int32_t> usable{5, 6, 7, 8, 9};
  const auto requests = selftest_requests(200, 7, 64, usable, 512);
  int greedy = 0, penalties = 0, bias = 0, stops = 0, choices = 0, long_ones = 0, logprobs = 0, scored = 0;
  for (const GenerateRequest& r : requests) {
    const auto& prompt = std::get<std::vector<int32_t>>(r.prompt);
    EXPECT_LE(prompt.size() + size_t(*r.max_tokens), 512u);
    greedy += r.sampling.temperature == 0;
    penalties += r.sampling.presence_penalty != 0;
    bias += !r.sampling.logit_bias.empty();
    stops += !r.stop.empty();
    choices += r.n > 1;
    long_ones += prompt.size() > 64 + 32;  // the longest of one chunk
    logprobs += r.sampling.top_logprobs > 0;
    scored += r.want_prompt_logprobs;
  }
  for (const int count : {greedy, penalties, bias, stops, choices, logprobs}) EXPECT_GT(count, 5);
  EXPECT_GT(scored, 0);
  EXPECT_GT(long_ones, 0);
  const auto again = selftest_requests(200, 7, 64, usable, 512),
             other = selftest_requests(200, 8, 64, usable, 512);
  EXPECT_EQ(std::get<1>(again[50].prompt), std::get<1>(requests[50].prompt));
  EXPECT_NE(std::get<1>(other[50].prompt), std::get<1>(requests[50].prompt));
}

}  // namespace
}  // namespace gapless
