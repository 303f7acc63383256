#include "scheduler/sim_testing/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sampling/testing/hash_grammar.h"

namespace gapless::sim_testing {
namespace {

constexpr int64_t kWaveTicks = 800;

// Syllables of few letters, so that stop strings are met; end tokens contribute no text.
Vocabulary make_vocabulary(Random& random) {
  Vocabulary v;
  v.size = random.one_of({128, 128, 128, 200, 512});
  for (int32_t n = random.between(1, 3), id = 0; n > 0; n--, id += random.between(1, 3))
    v.eos_ids.push_back(id);
  v.tokens.offsets.push_back(0);
  for (int32_t id = 0; id < v.size; id++) {
    for (int32_t i = 0; i <= id % 3; i++) v.tokens.bytes += char('a' + (id / 3 + i * 2) % 5);
    v.tokens.offsets.push_back(uint32_t(v.tokens.bytes.size()));
    v.tokens.control.push_back(std::ranges::binary_search(v.eos_ids, id));
  }
  return v;
}

class Maker {
 public:
  Maker(uint64_t seed, Flavour flavour) : random_(seed), flavour_(flavour) {
    if (flavour_ == Flavour::kAny) {
      flavour_ = random_.one_of({Flavour::kGeneral, Flavour::kGeneral, Flavour::kBurst, Flavour::kTight,
                                 Flavour::kConversation, Flavour::kFailures});
    }
    w_.seed = seed;
    w_.vocabulary = make_vocabulary(random_);
  }

  Workload make() {
    choose_config();
    for (int32_t i = 0; i < 3; i++)
      prefixes_.push_back(ids(random_.between(4, w_.config.context_length / 2)));
    const int32_t n = random_.chance(20) ? random_.between(1, 3) : random_.between(4, 24);
    spread_ = is(Flavour::kBurst) ? random_.one_of({1, 8}) : random_.one_of({1, 30, tight() ? 60 : 300});
    for (int32_t i = 0; i < n; i++) add_request();
    add_admin();
    std::ranges::stable_sort(w_.happenings, {}, &Happening::at);
    choose_pool();
    return std::move(w_);
  }

 private:
  bool is(Flavour flavour) const { return flavour_ == flavour; }
  bool tight() const { return is(Flavour::kTight) || is(Flavour::kFailures); }
  int32_t id() { return random_.between(int32_t(w_.vocabulary.eos_ids.back()) + 1, w_.vocabulary.size - 1); }
  std::vector<int32_t> ids(int32_t n) {
    std::vector<int32_t> out;
    while (n-- > 0) out.push_back(id());
    return out;
  }

  void choose_config() {
    SchedulerConfig& c = w_.config;
    c.vocab_size = w_.vocabulary.size;
    c.eos_ids = w_.vocabulary.eos_ids;
    c.page_size = random_.one_of({1, 1, 4, 16});
    c.max_running_requests = random_.one_of({1, 2, 3, 4, 8, 16, 64});
    c.context_length = random_.one_of({24, 48, 48, 96});
    c.chunked_prefill_size = random_.chance(25) ? -1 : random_.between(1, random_.one_of({4, 16, 64}));
    c.max_prefill_tokens = random_.between(48, 200);
    c.mixed_chunk = random_.chance(is(Flavour::kBurst) ? 25 : 60);
    c.max_consecutive_prefill = random_.one_of({1, 1, 2, 4});
    c.radix_cache = random_.chance(85);
    c.policy = SchedulePolicy(random_.below(5));
    c.schedule_conservativeness = random_.one_of({0.1, 0.3, 1.0, 1.0, 2.0});
    c.random_seed = random_.bits();
    if (is(Flavour::kBurst)) {
      c.max_running_requests = random_.one_of({1, 2, 3, 4, 8});
      c.max_consecutive_prefill = random_.one_of({2, 8, 16, 32});
      c.chunked_prefill_size = random_.between(1, 16);
    }
    if (tight()) {
      c.max_running_requests = random_.one_of({3, 4, 8, 16, 64});
      c.schedule_conservativeness = 0.1;
    }
    if (is(Flavour::kConversation)) {
      c.page_size = random_.one_of({1, 1, 4, 16});
      c.radix_cache = true;
    }
    w_.loop = random_.chance(20) ? EventLoop::kNormal : EventLoop::kOverlap;
    if (is(Flavour::kFailures) || random_.chance(5)) w_.fail_probability = random_.one_of({0.02, 0.05, 0.1});
    if (random_.chance(40)) w_.eviction_percent = random_.one_of({5, 30, 100});
    if (tight() && random_.chance(60)) w_.eviction_percent = 100;
  }

  std::vector<int32_t> choose_prompt() {
    const int32_t most = w_.config.context_length - 1;
    std::vector<int32_t> prompt;
    earliest_ = 0;
    if (random_.chance(is(Flavour::kConversation) ? 70 : 15) && !w_.requests.empty()) {
      const auto before = size_t(random_.below(int32_t(w_.requests.size())));
      prompt = w_.requests[before].prompt_ids;
      const std::vector<int32_t> answer = w_.answers[before][0].ids();
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      earliest_ = sent_at_[before] + random_.below(200);
    } else if (random_.chance(60)) {
      prompt = random_.one_of(prefixes_);
      prompt.resize(size_t(random_.between(1, int32_t(prompt.size()))));
    }
    const std::vector<int32_t> own = ids(random_.between(prompt.empty(), 6));
    prompt.insert(prompt.end(), own.begin(), own.end());
    if (tight() && random_.chance(90)) prompt.resize(std::min(prompt.size(), size_t(most / 4)));
    if (int32_t(prompt.size()) > most) prompt.resize(size_t(most));
    return prompt;
  }

  void choose_sampling(SamplingParams& p) {
    p.temperature = 0;
    p.seed = random_.bits();
    if (random_.chance(50)) {
      p.temperature = random_.one_of({0.3f, 0.8f, 1.0f, 1.7f});
      if (random_.chance(30)) p.top_k = random_.between(1, 40);
      if (random_.chance(30)) p.top_p = random_.one_of({0.3f, 0.8f, 0.95f});
      if (random_.chance(20)) p.min_p = random_.one_of({0.02f, 0.2f});
    }
    if (random_.chance(25)) p.repetition_penalty = random_.one_of({0.7f, 1.3f, 2.0f});
    if (random_.chance(30)) p.frequency_penalty = random_.one_of({-0.5f, 0.5f, 2.0f});
    if (random_.chance(25)) p.presence_penalty = random_.one_of({-0.5f, 1.0f});
    // A few likely tokens, so that an answer repeats itself and counts matter.
    if (random_.chance(35)) {
      int32_t at = id();
      for (int32_t i = random_.between(2, 5); i > 0 && at < w_.vocabulary.size; i--, at += 3)
        p.logit_bias.push_back({at, random_.one_of({4.0f, 14.0f, 15.0f, -100.0f})});
    }
    if (random_.chance(15)) p.logit_bias.push_back({w_.vocabulary.eos_ids[0], 6.0f});
    if (random_.chance(25)) p.min_tokens = random_.between(0, p.max_tokens);
    const int32_t stops = tight() ? 10 : is(Flavour::kConversation) ? 60 : 35;
    if (random_.chance(stops)) p.stop_token_ids = ids(random_.between(1, w_.vocabulary.size / 8));
    p.ignore_eos = random_.chance(tight() ? 90 : 50);
    if (random_.chance(50)) p.top_logprobs = random_.one_of({0, 0, 1, 5, 20});
  }

  void add_request() {
    Request made;
    made.id = w_.requests.size() + 1;
    made.prompt_ids = choose_prompt();
    const int32_t room = w_.config.context_length - int32_t(made.prompt_ids.size());
    const bool one_token = random_.chance(is(Flavour::kBurst) ? 60 : 10);
    const int32_t most = std::min(room, tight() ? 40 : 20);
    made.params.max_tokens =
        one_token ? random_.between(0, 1) : random_.between(tight() ? most / 2 : 1, most);
    choose_sampling(made.params);
    if (random_.chance(20)) made.n = random_.between(2, 3);
    if (random_.chance(15)) made.prompt_logprob_begin = random_.below(int32_t(made.prompt_ids.size()));
    if (random_.chance(15)) made.cache_namespace = "other";
    made.skip_special_tokens = random_.chance(50);
    if (random_.chance(30)) {
      made.grammar = std::make_shared<testing::HashGrammar>(
          testing::HashGrammar::Options{.seed = random_.bits(),
                                        .vocab_size = w_.vocabulary.size,
                                        .eos_ids = w_.vocabulary.eos_ids,
                                        .allowed_percent = uint64_t(random_.one_of({2, 10, 30, 60}))});
    }
    for (int32_t n = random_.chance(tight() ? 10 : 40) ? random_.between(1, 3) : 0; n > 0; n--) {
      std::string& stop = made.stop.emplace_back(size_t(random_.between(1, 5)), 'a');
      for (char& c : stop) c = char('a' + random_.below(5));
    }
    std::vector<Answer> answers;
    for (int32_t choice = 0; choice < made.n; choice++)
      answers.push_back(expected_answer(w_.vocabulary, made, choice));
    // A pool that had to send somebody back is used with care until it has been idle: so, several times.
    const int64_t wave = tight() ? kWaveTicks * random_.below(4) : 0;
    const int64_t at = std::max(earliest_, wave) + random_.below(spread_);
    sent_at_.push_back(at);
    const size_t index = w_.requests.size();
    w_.happenings.push_back({at, Happening::Kind::kRequest, index});
    if (random_.chance(15)) w_.happenings.push_back({at + random_.below(60), Happening::Kind::kAbort, index});
    w_.requests.push_back(std::move(made));
    w_.answers.push_back(std::move(answers));
  }

  void add_admin() {
    for (int32_t n = random_.chance(25) ? random_.between(1, 2) : 0; n > 0; n--)
      w_.happenings.push_back({random_.below(2 * spread_), Happening::Kind::kFlush});
    EventLoop to = w_.loop;
    int64_t at = 0;
    for (int32_t n = random_.chance(25) ? random_.between(1, 4) : 0; n > 0; n--) {
      to = to == EventLoop::kNormal ? EventLoop::kOverlap : EventLoop::kNormal;
      at += random_.below(spread_ + 30);
      w_.happenings.push_back({at, Happening::Kind::kSwitch, 0, to});
    }
  }

  void choose_pool() {
    const SchedulerConfig& c = w_.config;
    int64_t largest = 1;
    for (const Request& r : w_.requests) {
      const int64_t need = int64_t(r.prompt_ids.size()) + std::max(r.params.max_tokens, 1) - 1;
      largest = std::max(largest, (need + c.page_size - 1) / c.page_size);
    }
    const bool tight = is(Flavour::kTight) || is(Flavour::kFailures);
    const double factor =
        tight ? random_.one_of({1.2, 1.5, 2.0}) : random_.one_of({1.0, 1.2, 2.0, 4.0, 10.0});
    w_.config.max_total_tokens = int64_t(double(largest) * factor) * c.page_size;
  }

  Random random_;
  Flavour flavour_;
  Workload w_;
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<int64_t> sent_at_;
  int32_t spread_ = 1;
  int64_t earliest_ = 0;  // when the request being made may be sent
};

}  // namespace

Workload make_workload(uint64_t seed, Flavour flavour) {
  return Maker(seed, flavour).make();
}

std::string Workload::description() const {
  const SchedulerConfig& c = config;
  return fmt::format(
      "{} requests, vocabulary {}, eos {}, page {}, pool {}, context {}, running {}, chunk {}, prefill {}, "
      "mixed {}, consecutive {}, radix {}, policy {}, {} loop, failures {}, evictions {} %",
      requests.size(), vocabulary.size, fmt::join(vocabulary.eos_ids, ","), c.page_size, c.max_total_tokens,
      c.context_length, c.max_running_requests, c.chunked_prefill_size, c.max_prefill_tokens, c.mixed_chunk,
      c.max_consecutive_prefill, c.radix_cache, int(c.policy), event_loop_name(loop), fail_probability,
      eviction_percent);
}

}  // namespace gapless::sim_testing
