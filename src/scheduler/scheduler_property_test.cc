// Thousands of random workloads against the oracle: whatever is admitted, cut, mixed, retracted, aborted or
// cached, every answer is the oracle's, the memory laws hold after every step, and nothing is left at the
// end. A failing seed is printed; GAPLESS_SEED runs it alone, GAPLESS_WORKLOADS sets how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include "scheduler/testing/harness.h"
#include "scheduler/validate.h"

namespace gapless::testing {
namespace {

struct Event {
  enum class Kind { kRequest, kAbort, kFlush };
  int64_t step;
  Kind kind;
  RequestId id;
};

class Workload {
 public:
  explicit Workload(uint64_t seed) : rng_(seed) { choose_config(); }

  void run() {
    choose_requests();
    Harness h(config, loop);
    const bool held = below(2);
    h.worker.hold(held);
    int64_t failures = below(8) == 0 ? 1 + below(2) : 0;
    size_t next = 0;
    for (int64_t step = 0;; step++) {
      ASSERT_LT(step, 20000) << "never ends";
      while (next < events_.size() && events_[next].step <= step) {
        send(h, events_[next++]);
      }
      if (failures > 0 && below(20) == 0) {
        h.worker.fail_next(Status::internal("injected"));
        failures--;
      }
      // The device is ahead of the host, or behind it.
      if (held && below(3) == 0) h.worker.run_one();
      const LoopWait wait = h.step();
      check_aborts(h);
      if (::testing::Test::HasFailure()) return;
      if (wait == LoopWait::kStopped) break;
      if (wait != LoopWait::kRequests) continue;
      if (next == events_.size()) {
        h.close();
      } else {
        step = std::max(step, events_[next].step - 1);
      }
    }
    h.expect_nothing_left();
    EXPECT_EQ(flushed_, n_flushes_);
    int64_t errors = 0, failed_rows = 0;
    for (const Request& request : requests_) {
      for (int32_t choice = 0; choice < request.n; choice++) errors += check(h, request, choice);
    }
    for (const FakeWorker::Step& s : h.worker.steps()) failed_rows += s.failed ? s.rows : 0;
    if (loop == EventLoop::kNormal) {
      EXPECT_EQ(errors, failed_rows) << "a failed step takes its own rows down, and only them";
    } else {
      EXPECT_LE(errors, failed_rows);
    }
    retractions = int64_t(h.scheduler->stats().retractions);
    recalls = h.scheduler->stats().recalls;
    stalls = h.scheduler->stats().memory_stalls;
    cached = h.scheduler->stats().cached_tokens;
  }

  SchedulerConfig config;
  EventLoop loop = EventLoop::kNormal;
  int64_t recalls = 0, stalls = 0, retractions = 0, cached = 0;

 private:
  int32_t below(int32_t n) { return int32_t(rng_() % uint64_t(n)); }
  int32_t between(int32_t lo, int32_t hi) { return lo + below(hi - lo + 1); }

  void choose_config() {
    config = small_config();
    loop = below(4) == 0 ? EventLoop::kNormal : EventLoop::kOverlap;
    config.page_size = std::array{1, 4, 16}[below(3)];
    config.max_running_requests = between(1, 16);
    config.chunked_prefill_size = below(4) == 0 ? -1 : between(1, 48);
    config.max_prefill_tokens = between(48, 200);
    config.mixed_chunk = below(2);
    config.radix_cache = below(8) != 0;
    config.policy = SchedulePolicy(below(5));
    config.max_consecutive_prefill = between(1, 3);
    config.schedule_conservativeness = std::array{0.1, 1.0, 1.0, 2.0}[below(4)];
    config.random_seed = rng_();
    config.context_length = between(40, 160);
    config.eos_ids = below(2) ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{1};
  }

  std::vector<int32_t> choose_prompt() {
    std::vector<int32_t> ids;
    if (below(4) != 0) {
      const int32_t base = below(3);
      ids = prompt(between(1, config.context_length * 2 / 3), base);
    }
    for (int32_t n = below(8); n > 0 || ids.empty(); n--) ids.push_back(2 + below(62));
    if (int32_t(ids.size()) >= config.context_length) ids.resize(config.context_length - 1);
    return ids;
  }

  Request choose_request(RequestId id) {
    Request r = make_request(id, choose_prompt(), 0);
    const int32_t room = config.context_length - int32_t(r.prompt_ids.size());
    r.params.max_tokens = below(12) == 0 ? 0 : between(1, std::min(room, below(4) ? 12 : room));
    r.params.ignore_eos = below(2);
    r.params.frequency_penalty = below(2) ? 0.5f : 0.0f;
    r.params.seed = rng_();
    if (below(3) == 0) r.params.min_tokens = below(r.params.max_tokens + 1);
    if (below(3) == 0) r.params.stop_token_ids = {2 + below(62), 2 + below(62)};
    if (below(3) == 0) r.params.top_logprobs = below(2);
    if (below(6) == 0) r.prompt_logprob_begin = below(int32_t(r.prompt_ids.size()));
    if (below(4) == 0) r.n = between(2, 3);
    if (below(4) == 0) r.cache_namespace = "other";
    r.skip_special_tokens = below(2);
    for (int32_t n = below(3); n > 0; n--) {
      std::string& stop = r.stop.emplace_back(size_t(1 + below(5)), 'a');
      for (char& c : stop) c = char('a' + below(5));
    }
    return r;
  }

  void choose_requests() {
    const int32_t n = between(1, 24), spread = std::array{1, 10, 100}[below(3)];
    int64_t largest = 1;
    for (int32_t i = 0; i < n; i++) {
      Request& r = requests_.emplace_back(choose_request(RequestId(i) + 1));
      const int64_t need = int64_t(r.prompt_ids.size()) + std::max(r.params.max_tokens, 1) - 1;
      largest = std::max(largest, (need + config.page_size - 1) / config.page_size);
      const int64_t at = below(spread);
      events_.push_back({at, Event::Kind::kRequest, r.id});
      if (below(4) == 0) {
        aborted_.push_back(r.id);
        events_.push_back({at + below(40), Event::Kind::kAbort, r.id});
      }
    }
    if (below(3) == 0) {
      n_flushes_++;
      events_.push_back({below(spread * 2), Event::Kind::kFlush, 0});
    }
    std::ranges::stable_sort(events_, {}, &Event::step);
    const double factor = std::array{1.0, 1.2, 1.5, 3.0, 10.0}[below(5)];
    config.max_total_tokens = int64_t(double(largest) * factor) * config.page_size;
  }

  void send(Harness& h, const Event& event) {
    switch (event.kind) {
      case Event::Kind::kRequest:
        return h.send(requests_[event.id - 1]);
      case Event::Kind::kAbort:
        pending_aborts_.push_back(event.id);
        return h.abort(event.id);
      case Event::Kind::kFlush:
        return h.flush([this](int64_t) { flushed_++; });
    }
  }

  // Once an abort has been taken in, its request has had its last delta, whatever it was doing (T29).
  void check_aborts(const Harness& h) {
    if (h.inbox.size() > 0) return;
    for (RequestId id : std::exchange(pending_aborts_, {})) {
      for (int32_t choice = 0; choice < requests_[id - 1].n; choice++) {
        EXPECT_TRUE(h.has(id, choice) && h.got(id, choice).finish)
            << "request " << id << " was aborted and goes on";
      }
    }
  }

  // 1 when it ended by an injected failure.
  int64_t check(const Harness& h, const Request& request, int32_t choice) {
    const std::string who = fmt::format("request {}.{}", request.id, choice);
    if (!h.has(request.id, choice)) {
      ADD_FAILURE() << who << " was never answered";
      return 0;
    }
    const Received& r = h.got(request.id, choice);
    const Answer a = h.expected(request, choice);
    EXPECT_TRUE(r.finish.has_value()) << who << " never ended";
    if (!r.finish) return 0;
    EXPECT_EQ(r.prompt_tokens, int32_t(request.prompt_ids.size())) << who;
    const bool cut_short =
        r.finish->reason == FinishReason::kAbort || r.finish->reason == FinishReason::kError;
    if (cut_short) {
      EXPECT_LT(r.ids.size(), a.ids.size() + (request.params.max_tokens == 0)) << who;
      EXPECT_EQ(r.ids,
                std::vector<int32_t>(a.ids.begin(), a.ids.begin() + std::min(r.ids.size(), a.ids.size())))
          << who;
      EXPECT_EQ(r.finish->status.code(),
                r.finish->reason == FinishReason::kAbort ? StatusCode::kCancelled : StatusCode::kInternal);
      if (r.finish->reason == FinishReason::kAbort) {
        EXPECT_TRUE(std::ranges::count(aborted_, request.id)) << who;
      }
      return r.finish->reason == FinishReason::kError;
    }
    EXPECT_EQ(r.ids, a.ids) << who;
    EXPECT_EQ(r.finish->reason, a.finish.reason) << who;
    EXPECT_EQ(r.finish->matched, a.finish.matched) << who;
    EXPECT_EQ(r.visible_bytes, int64_t(a.visible.size())) << who;
    if (request.params.top_logprobs >= 0) {
      EXPECT_EQ(r.logprobs, a.logprobs) << who;
    }
    EXPECT_EQ(r.prompt_logprobs.size(), a.prompt_logprobs.size()) << who;
    for (size_t i = 0; i < std::min(r.prompt_logprobs.size(), a.prompt_logprobs.size()); i++) {
      EXPECT_EQ(r.prompt_logprobs[i].id, request.prompt_ids[request.prompt_logprob_begin + 1 + i]) << who;
      EXPECT_EQ(r.prompt_logprobs[i].logprob, a.prompt_logprobs[i]) << who;
    }
    return 0;
  }

  std::mt19937_64 rng_;
  std::vector<Request> requests_;
  std::vector<Event> events_;
  std::vector<RequestId> aborted_, pending_aborts_;
  int32_t n_flushes_ = 0, flushed_ = 0;
};

int64_t env(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

TEST(SchedulerProperty, RandomWorkloadsGiveTheOraclesAnswers) {
  const int64_t only = env("GAPLESS_SEED", 0), n = env("GAPLESS_WORKLOADS", 4000);
  int64_t retracted = 0, cached = 0, recalled = 0, stalled = 0;
  for (int64_t seed = only ? only : 1; seed <= (only ? only : n); seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Workload workload{uint64_t(seed)};
    workload.run();
    retracted += workload.retractions > 0;
    cached += workload.cached > 0;
    recalled += workload.recalls > 0;
    stalled += workload.stalls > 0;
    ASSERT_FALSE(HasFailure()) << "GAPLESS_SEED=" << seed;
  }
  if (only) return;
  // The workloads are worth something: they meet what they are meant to meet.
  EXPECT_GT(retracted, n / 40);
  EXPECT_GT(cached, n / 4);
  EXPECT_GT(recalled, n / 10);
  EXPECT_GT(stalled, n / 4000);
}

}  // namespace
}  // namespace gapless::testing
