// The loops as they run in a server: the scheduler on one thread, the forward side on another, requests,
// aborts, flushes, loop switches and questions from two more, all of them with small random delays. The
// thread sanitizer watches: a page that is given back while a batch reads it is a race here.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "scheduler/testing/harness.h"
#include "scheduler/testing/workload.h"

namespace gapless::testing {
namespace {

// Now and then a moment; mostly nothing.
class Dawdler {
 public:
  explicit Dawdler(uint64_t seed) : rng_(seed) {}
  void operator()() {
    const uint64_t n = rng_() % 8;
    if (n == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng_() % 200));
    if (n < 4) std::this_thread::yield();
  }

 private:
  std::mt19937_64 rng_;
};

class ThreadedRun {
 public:
  explicit ThreadedRun(Workload workload) : w_(std::move(workload)), h_(w_.config, w_.loop) {
    h_.worker.hold(true);
  }

  void run() {
    std::thread device([this] { h_.worker.serve(Dawdler(w_.driver_seed)); });
    std::thread loop([this] { h_.scheduler->run(w_.loop); });
    std::thread requests([this] { send(true); });
    std::thread others([this] { send(false); });
    requests.join();
    others.join();
    h_.inbox.close();
    loop.join();
    h_.worker.stop();
    device.join();
    check();
  }

  int64_t recalls() const { return h_.scheduler->stats().recalls; }

 private:
  void send(bool requests) {
    Dawdler dawdle(w_.driver_seed + requests);
    EventLoop loop = w_.loop;
    for (const WorkloadEvent& event : w_.events) {
      if ((event.kind == WorkloadEvent::Kind::kRequest) != requests) continue;
      dawdle();
      if (!requests) ask_what_runs();
      switch (event.kind) {
        case WorkloadEvent::Kind::kRequest:
          push(std::make_unique<Request>(w_.requests[event.id - 1]));
          break;
        case WorkloadEvent::Kind::kAbort:
          push(AbortRequest{event.id});
          break;
        case WorkloadEvent::Kind::kFlush:
          sent_++;
          push(FlushCache{[this](int64_t) { answered_++; }});
          break;
        case WorkloadEvent::Kind::kSwitch:
          sent_++;
          loop = loop == EventLoop::kNormal ? EventLoop::kOverlap : EventLoop::kNormal;
          push(SwitchLoop{loop, [this] { answered_++; }});
          break;
      }
      if (event.kind == WorkloadEvent::Kind::kRequest && w_.failures-- > 0)
        h_.worker.fail_next(Status::internal("injected"));
    }
  }
  void ask_what_runs() {
    sent_++;
    push(TakeSnapshot{[this](SchedulerSnapshot&& s) {
      answered_++;
      EXPECT_EQ(s.pages.free + s.pages.tree + s.pages.in_use + s.pages.leased, w_.config.max_total_pages());
      EXPECT_EQ(int64_t(s.requests.size()) + s.requests_left_out, s.stats.running + s.stats.queued);
    }});
  }
  void push(SchedulerMessage message) { ASSERT_TRUE(h_.inbox.try_push(std::move(message))); }

  void check() {
    h_.expect_nothing_left();
    EXPECT_EQ(answered_, sent_) << "flushes, switches and snapshots";
    for (const Request& request : w_.requests) {
      for (int32_t choice = 0; choice < request.n; choice++) h_.expect_answer_or_cut(request, choice, true);
    }
  }

  Workload w_;
  Harness h_;
  int32_t sent_ = 0;      // by one client thread
  int32_t answered_ = 0;  // on the scheduler thread
};

TEST(SchedulerThreads, WorkloadsGiveTheOraclesAnswers) {
  int64_t recalls = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ThreadedRun run(make_workload(seed));
    run.run();
    recalls += run.recalls();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(recalls, 0);
}

// Every request joins or waits behind one that is being computed, and the loop sleeps in between: a wake-up
// that gets lost would leave it asleep for ever.
TEST(SchedulerThreads, ASleepingLoopMissesNeitherResultsNorRequests) {
  SchedulerConfig config = small_config();
  Harness h(config, EventLoop::kOverlap);
  h.worker.hold(true);
  std::thread device([&] { h.worker.serve(Dawdler(7)); });
  std::thread loop([&] { h.scheduler->run(EventLoop::kOverlap); });
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 300; id++) requests.push_back(make_request(id, prompt(5, int32_t(id)), 4));
  Dawdler dawdle(8);
  for (const Request& r : requests) {
    dawdle();
    ASSERT_TRUE(h.inbox.try_push(std::make_unique<Request>(r)));
    // Every now and then all the way to idle (A-OVL-13).
    while (r.id % 10 == 0 && h.scheduler->stats().generation_tokens < int64_t(r.id) * 4)
      std::this_thread::yield();
  }
  h.inbox.close();
  loop.join();
  h.worker.stop();
  device.join();
  for (const Request& r : requests) h.expect_answer(r);
  h.expect_nothing_left();
}

}  // namespace
}  // namespace gapless::testing
