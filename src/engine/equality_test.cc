// The product's promise, on tiny random models and, where GAPLESS_SMOLLM2 or GAPLESS_GEMMA3 names its file,
// on a real one: one request's tokens, logprobs and text are the same bits alone or in a crowd, in the normal
// loop or with overlap, or while the loops are switched, cold or cached, in chunks of any size or whole,
// mixed with decode rows or not, with any page size, with a pool that has room or retracts all the time, and
// with any number of threads; for each type of the KV cache.
//
// Workloads are random; the seed is printed. GAPLESS_EQUALITY_SEED and GAPLESS_EQUALITY_WORKLOADS choose
// others, GAPLESS_EQUALITY_CROWD the size of the largest crowd.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "engine/testing/collect.h"
#include "model/testing/tiny_model.h"

namespace gapless {
namespace {

using testing::Outcome;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int32_t range(int32_t low, int32_t high) { return low + int32_t(engine_() % uint64_t(high - low + 1)); }
  bool chance(int32_t percent) { return range(1, 100) <= percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[range(0, int32_t(values.size()) - 1)];
  }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

constexpr int32_t kVocab = 512,
                  kFirstTextId =
                      6;  // below: control tokens of both tiny vocabularies; every vocabulary has these ids

std::vector<int32_t> random_ids(Random& random, int32_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = random.range(kFirstTextId, kVocab - 1);
  return ids;
}

// Half of them sample with a seed; penalties, bias, stops, logprobs and several choices come in any
// combination.
GenerateRequest random_request(Random& random, const std::vector<std::vector<int32_t>>& prefixes,
                               int32_t max_prompt) {
  GenerateRequest r;
  std::vector<int32_t> ids;
  if (random.chance(60)) ids = prefixes[size_t(random.range(0, int32_t(prefixes.size()) - 1))];
  ids.resize(std::min<size_t>(ids.size(), size_t(max_prompt) - 1));
  const std::vector<int32_t> own = random_ids(random, random.range(1, max_prompt - int32_t(ids.size())));
  ids.insert(ids.end(), own.begin(), own.end());
  r.prompt = std::move(ids);
  r.max_tokens = random.range(1, 24);
  SamplingParams& s = r.sampling;
  s.temperature = 0;
  if (random.chance(50)) {
    s.temperature = random.one_of({0.3f, 0.8f, 1.0f, 1.7f});
    r.seed = random.bits() % 1000;
    if (random.chance(30)) s.top_k = random.range(1, 40);
    if (random.chance(30)) s.top_p = random.one_of({0.3f, 0.8f, 0.95f});
    if (random.chance(20)) s.min_p = random.one_of({0.02f, 0.2f});
  }
  if (random.chance(25)) s.repetition_penalty = random.one_of({0.7f, 1.3f});
  if (random.chance(25)) s.frequency_penalty = random.one_of({-0.5f, 1.0f});
  if (random.chance(25)) s.presence_penalty = random.one_of({-0.5f, 1.0f});
  if (random.chance(25))
    s.logit_bias = {{random.range(0, 255), 4.0f}, {random.range(256, kVocab - 1), -100.0f}};
  if (random.chance(20)) s.min_tokens = random.range(1, *r.max_tokens);
  if (random.chance(20)) s.stop_token_ids = random_ids(random, 30);
  if (random.chance(30)) s.ignore_eos = true;
  if (random.chance(40)) s.top_logprobs = random.range(0, 5);
  if (random.chance(20)) r.stop = {"e", "th", "\n"};
  if (random.chance(15)) r.n = random.range(2, 3);
  if (random.chance(15)) {
    r.want_prompt_logprobs = true;
    s.top_logprobs = random.range(0, 3);
  } else if (random.chance(20)) {
    r.embedding = random.one_of({Pooling::kLast, Pooling::kMean});
    r.max_tokens = s.min_tokens = 0;
    r.n = 1;
  }
  return r;
}

int32_t need_of(const GenerateRequest& r) {
  return int32_t(std::get<std::vector<int32_t>>(r.prompt).size()) + *r.max_tokens;
}

struct Workload {
  std::vector<GenerateRequest> requests;
  EngineOptions options;
  bool switches = false;  // the loop, all the time
  std::string description;
};

Workload random_workload(Random& random, const std::string& model_path, int32_t n_requests = 32) {
  Workload w;
  std::vector<std::vector<int32_t>> prefixes;
  for (int32_t i = 0; i < 3; i++) prefixes.push_back(random_ids(random, random.range(10, 200)));
  const int32_t max_prompt = random.one_of({8, 60, 300});
  int32_t largest = 0;
  for (int32_t i = 0; i < n_requests; i++) {
    w.requests.push_back(random_request(random, prefixes, max_prompt));
    largest = std::max(largest, need_of(w.requests.back()));
  }
  w.options.model_path = model_path;
  w.options.threads = random.one_of({1, 2, 3});
  w.options.kv_dtype = random.one_of({KvDtype::kF16, KvDtype::kF16, KvDtype::kI8});
  w.options.disable_overlap_schedule = random.chance(30);
  w.switches = random.chance(30);
  SchedulerConfig& s = w.options.scheduler;
  s.page_size = random.one_of({1, 4, 16});
  s.chunked_prefill_size = random.one_of({16, 64, 512, -1});
  s.mixed_chunk = random.chance(60);
  s.radix_cache = random.chance(75);
  s.max_running_requests = random.one_of({3, 16, 64});
  s.policy = random.one_of({SchedulePolicy::kLpm, SchedulePolicy::kFcfs, SchedulePolicy::kLof,
                            SchedulePolicy::kRandom, SchedulePolicy::kDfsWeight});
  const bool tight = random.chance(50);  // so small that it retracts
  const int32_t pool = tight ? largest * random.range(12, 30) / 10 : 40000;
  s.max_total_tokens = (pool / s.page_size + 2) * s.page_size;
  if (tight) s.schedule_conservativeness = 0.2;  // admit as if answers were short
  w.description = fmt::format(
      "kv {} normal {} switches {} threads {} page {} chunk {} mixed {} radix {} running {} policy {} pool "
      "{} "
      "prompts to {}",
      kv_dtype_name(w.options.kv_dtype), w.options.disable_overlap_schedule, w.switches, w.options.threads,
      s.page_size, s.chunked_prefill_size, s.mixed_chunk, s.radix_cache, s.max_running_requests,
      int(s.policy), s.max_total_tokens, max_prompt);
  return w;
}

// Alone, one after the other, nothing shared or cached, one thread.
EngineOptions alone_options(const std::string& model_path, KvDtype kv_dtype = KvDtype::kF16) {
  EngineOptions o;
  o.model_path = model_path;
  o.kv_dtype = kv_dtype;
  o.threads = 1;
  o.disable_overlap_schedule = true;
  o.scheduler.radix_cache = false;
  o.scheduler.max_total_tokens = 40000;
  return o;
}

std::string describe(const GenerateRequest& r) {
  const SamplingParams& s = r.sampling;
  std::string text = fmt::format(
      "prompt {} max_tokens {} n {} temperature {} top_k {} top_p {} min_p {} seed {} repetition {} "
      "frequency {} "
      "presence {} min_tokens {} ignore_eos {} top_logprobs {} prompt_logprobs {} stops {} stop ids {} "
      "embedding {}",
      std::get<std::vector<int32_t>>(r.prompt).size(), *r.max_tokens, r.n, s.temperature, s.top_k, s.top_p,
      s.min_p, r.seed.value_or(0), s.repetition_penalty, s.frequency_penalty, s.presence_penalty,
      s.min_tokens, s.ignore_eos, s.top_logprobs, r.want_prompt_logprobs, r.stop.size(),
      s.stop_token_ids.size(), r.embedding ? int(*r.embedding) : -1);
  for (const auto& [id, bias] : s.logit_bias) text += fmt::format(" bias {}:{}", id, bias);
  return text;
}

void expect_equal(const Outcome& got, const Outcome& want, const std::string& where) {
  ASSERT_TRUE(got.status.is_ok()) << where << ": " << got.status.message();
  ASSERT_TRUE(want.status.is_ok()) << where << ": " << want.status.message();
  ASSERT_EQ(got.answers.size(), want.answers.size());
  for (size_t c = 0; c < got.answers.size(); c++) {
    ASSERT_EQ(got.answers[c].ids, want.answers[c].ids) << where << " choice " << c;
    ASSERT_EQ(got.answers[c].text, want.answers[c].text) << where << " choice " << c;
    ASSERT_EQ(got.answers[c].finish, want.answers[c].finish) << where << " choice " << c;
    ASSERT_EQ(got.answers[c].logprob_bits, want.answers[c].logprob_bits) << where << " choice " << c;
    ASSERT_EQ(got.answers[c].embedding_bits, want.answers[c].embedding_bits) << where << " choice " << c;
  }
  ASSERT_EQ(got.prompt_logprob_bits, want.prompt_logprob_bits) << where;
  ASSERT_EQ(got.usage.completion_tokens, want.usage.completion_tokens) << where;
  ASSERT_EQ(got.usage.prompt_tokens, want.usage.prompt_tokens) << where;
}

// Switches the loop of a running engine back and forth until it goes.
class LoopSwitcher {
 public:
  LoopSwitcher(Engine& engine, bool active) {
    if (!active) return;
    thread_ = std::jthread([&engine](std::stop_token stop) {
      for (EventLoop to = EventLoop::kNormal; !stop.stop_requested();) {
        ASSERT_TRUE(switch_loop_and_wait(engine, to));
        to = to == EventLoop::kNormal ? EventLoop::kOverlap : EventLoop::kNormal;
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    });
  }

 private:
  std::jthread thread_;
};

uint64_t number_from_env(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

// The parameter: a tiny model, or the environment variable with the path of a real one.
class Equality : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string model = GetParam();
    if (model == "GAPLESS_SMOLLM2" || model == "GAPLESS_GEMMA3") {
      const char* path = std::getenv(model.c_str());
      ASSERT_NE(path, nullptr) << model << " must be the path of the model file (./dev model)";
      path_ = path;
      return;
    }
    path_ = ::testing::TempDir() + fmt::format("equality-{}-{}.gguf", model, getpid());
    written_ = true;
    ASSERT_TRUE(testing::write_file(path_, model == "llama" ? testing::tiny_llama() : testing::tiny_gemma3())
                    .is_ok());
  }
  void TearDown() override {
    if (written_) std::filesystem::remove(path_);
  }
  std::string path_;
  bool written_ = false;
};

TEST_P(Equality, AloneOrInACrowdColdOrCached) {
  const uint64_t seed = number_from_env("GAPLESS_EQUALITY_SEED", std::random_device{}());
  const uint64_t workloads = number_from_env("GAPLESS_EQUALITY_WORKLOADS", 32);
  std::cout << GetParam() << ": GAPLESS_EQUALITY_SEED=" << seed << " workloads " << workloads << std::endl;
  std::map<KvDtype, std::unique_ptr<Engine>> alone;
  uint64_t retractions = 0, cached = 0;
  for (uint64_t i = 0; i < workloads; i++) {
    Random random(seed + i);
    const Workload w = random_workload(random, path_);
    SCOPED_TRACE(fmt::format("workload seed {}: {}", seed + i, w.description));
    std::unique_ptr<Engine>& reference = alone[w.options.kv_dtype];
    if (!reference) reference = Engine::create(alone_options(path_, w.options.kv_dtype)).value();
    const std::vector<Outcome> want = testing::run_alone(*reference, w.requests);
    Result<std::unique_ptr<Engine>> engine = Engine::create(w.options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    for (const char* pass : {"cold", "cached"}) {
      const LoopSwitcher switcher(**engine, w.switches);
      const std::vector<Outcome> got = testing::run_together(**engine, w.requests);
      for (size_t r = 0; r < got.size(); r++) {
        expect_equal(got[r], want[r], fmt::format("{} request {} ({})", pass, r, describe(w.requests[r])));
        if (HasFatalFailure()) return;
        cached += uint64_t(got[r].usage.cached_tokens);
      }
    }
    flush_cache_and_wait(**engine);  // answered when nothing runs
    ASSERT_EQ((*engine)->load().kv_tokens_used, 0);
    ASSERT_EQ((*engine)->scheduler().stats().kv_healed, 0);
    retractions += uint64_t((*engine)->scheduler().stats().retractions);
  }
  // The workloads must have exercised what they claim to.
  if (workloads >= 16) {
    EXPECT_GT(retractions, 0u);
    EXPECT_GT(cached, 0u);
  }
}

TEST_P(Equality, OverlapIsNormalIsAlone) {
  const uint64_t seed = number_from_env("GAPLESS_EQUALITY_SEED", std::random_device{}());
  std::cout << GetParam() << ": GAPLESS_EQUALITY_SEED=" << seed << std::endl;
  Random random(seed);
  Workload w = random_workload(random, path_, int32_t(number_from_env("GAPLESS_EQUALITY_CROWD", 64)));
  SCOPED_TRACE(w.description);
  const std::vector<Outcome> want =
      testing::run_alone(*Engine::create(alone_options(path_, w.options.kv_dtype)).value(), w.requests);
  for (const bool normal : {true, false}) {
    w.options.disable_overlap_schedule = normal;
    const std::unique_ptr<Engine> engine = Engine::create(w.options).value();
    const std::vector<Outcome> got = testing::run_together(*engine, w.requests);
    for (size_t r = 0; r < got.size(); r++) {
      expect_equal(
          got[r], want[r],
          fmt::format("{} request {} ({})", normal ? "normal" : "overlap", r, describe(w.requests[r])));
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(engine->scheduler().stats().kv_healed, 0);
  }
}

// Greedy, min_tokens reached, ended by a stop token that had been banned: its logprob is of the row that
// chose it.
TEST_P(Equality, LogprobsAfterMinTokensAreOfTheRowItself) {
  std::unique_ptr<Engine> engine = Engine::create(alone_options(path_)).value();
  for (int32_t attempt = 0; attempt < 20; attempt++) {
    GenerateRequest r;
    r.prompt = std::vector<int32_t>{20 + attempt, 40, 60 + attempt, 80};
    r.max_tokens = 8;
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.top_logprobs = 0;
    const testing::Answer want = testing::run_alone(*engine, {r})[0].answers[0];
    // Ban what comes sixth until then: the answer is the same if it does not come earlier, and the logprob is
    // too.
    const int32_t sixth = want.ids[5];
    if (std::count(want.ids.begin(), want.ids.begin() + 5, sixth) > 0) continue;
    r.sampling.min_tokens = 5;
    r.sampling.stop_token_ids = {sixth};
    const testing::Answer got = testing::run_alone(*engine, {r})[0].answers[0];
    ASSERT_EQ(got.ids, std::vector<int32_t>(want.ids.begin(), want.ids.begin() + 6));
    EXPECT_EQ(got.logprob_bits,
              std::vector<uint32_t>(want.logprob_bits.begin(), want.logprob_bits.begin() + 6));
    return;
  }
  FAIL() << "no prompt has an answer whose sixth token is new";
}

INSTANTIATE_TEST_SUITE_P(Models, Equality, ::testing::Values(GAPLESS_EQUALITY_MODELS),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gapless
