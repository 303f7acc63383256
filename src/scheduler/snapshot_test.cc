// What a snapshot says is what the scheduler has, whatever it is doing when it is asked.
#include "scheduler/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "scheduler/testing/stepped.h"

namespace gapless::testing {
namespace {

SchedulerSnapshot ask(Harness& h) {
  std::optional<SchedulerSnapshot> answer;
  h.inbox.try_push(TakeSnapshot{[&](SchedulerSnapshot&& taken) { answer = std::move(taken); }});
  h.step_host();
  if (!answer) throw std::logic_error("the step took in no message");
  return *std::move(answer);
}

int32_t pages(const SchedulerSnapshot& s) {
  return s.pages.free + s.pages.tree + s.pages.in_use + s.pages.leased;
}

const RequestRow& row(const SchedulerSnapshot& s, RequestId id, int32_t choice = 0) {
  const auto it =
      std::ranges::find_if(s.requests, [&](const RequestRow& r) { return r.id == id && r.choice == choice; });
  if (it == s.requests.end()) throw std::logic_error("no such row");
  return *it;
}

Request named(RequestId id, std::vector<int32_t> ids, int32_t max_tokens) {
  Request request = make_request(id, std::move(ids), max_tokens);
  request.rid = fmt::format("request {}", id);
  return request;
}

TEST(Snapshot, AnIdleSchedulerAnswers) {
  Harness h(small_config());
  h.run_until_idle();
  const SchedulerSnapshot s = ask(h);
  EXPECT_TRUE(s.requests.empty());
  EXPECT_EQ(s.requests_left_out, 0);
  EXPECT_EQ(s.pages.page_size, 4);
  EXPECT_EQ(s.pages.free, 64);
  EXPECT_EQ(pages(s), 64);
  EXPECT_EQ(s.cache_nodes, 0);
}

TEST(Snapshot, RowsSayWhereEachChoiceIs) {
  SchedulerConfig config = small_config();
  config.max_running_requests = 3;
  Stepped s(config);
  Request two = named(1, prompt(9), 20);
  two.n = 2;
  s.send(two);
  s.settle();
  s.turns(3);
  s.send(named(2, prompt(40, 1), 5));  // its prompt takes several chunks of 16
  s.send(named(3, prompt(5, 2), 7));   // and there is no room for this one
  s.turns(2);
  const SchedulerSnapshot shot = ask(s.h);
  ASSERT_EQ(shot.requests.size(), 4u);
  EXPECT_EQ(row(shot, 1, 0).rid, "request 1");
  for (const int32_t choice : {0, 1}) {
    const RequestRow& decoding = row(shot, 1, choice);
    EXPECT_EQ(decoding.phase, RequestPhase::kDecode);
    EXPECT_EQ(decoding.prompt, 9);
    EXPECT_EQ(decoding.max_output, 20);
    EXPECT_EQ(decoding.output, int32_t(s.h.got(1, choice).ids.size()));
    EXPECT_EQ(decoding.computed, s.peer.req(1, choice).kv_done);
    EXPECT_LE(decoding.queue_seconds, decoding.age_seconds);
  }
  EXPECT_EQ(row(shot, 2).phase, RequestPhase::kPrefill);
  EXPECT_EQ(row(shot, 2).output, 0);
  EXPECT_EQ(shot.requests.back().id, 3u);
  EXPECT_EQ(shot.requests.back().phase, RequestPhase::kWaiting);
  EXPECT_EQ(shot.requests.back().queue_seconds, shot.requests.back().age_seconds);
  EXPECT_EQ(shot.stats.running, 3);
  EXPECT_EQ(shot.stats.queued, 1);
  EXPECT_EQ(pages(shot), 64);
  s.finish_all();
}

// Requests 1 and 2, which have nothing in common.
void run_two(Stepped& s, int turns) {
  s.send(named(1, prompt(10), 30));
  s.send(named(2, prompt(10, 1), 30));
  s.settle();
  s.turns(turns);
}

TEST(Snapshot, PagesOfARequestThatEndedInFlightAreLeased) {
  Stepped s;
  s.send(named(1, prompt(10), 30));
  s.settle();
  s.turns(3);
  s.h.abort(1);
  s.h.step_host();
  const SchedulerSnapshot shot = ask(s.h);
  EXPECT_TRUE(shot.requests.empty());
  EXPECT_EQ(shot.pages.leased, s.leased());
  EXPECT_GT(shot.pages.leased, 0);
  EXPECT_EQ(pages(shot), 64);
  s.finish_all();
}

TEST(Snapshot, WhatAnAbortBeforeItEndedIsGone) {
  Stepped s;
  run_two(s, 3);
  s.h.abort(1);
  const SchedulerSnapshot shot = ask(s.h);  // in the same step
  EXPECT_EQ(shot.stats.running, 1);
  ASSERT_EQ(shot.requests.size(), 1u);
  EXPECT_EQ(shot.requests[0].id, 2u);
  EXPECT_EQ(shot.requests_left_out, 0);
  s.finish_all();
}

TEST(Snapshot, ARetractedRequestIsToldApart) {
  Stepped s;
  run_two(s, 4);
  s.peer.retract(s.peer.req(2));
  bool answered = false;
  s.h.inbox.try_push(TakeSnapshot{[&](SchedulerSnapshot&& shot) {
    answered = true;
    EXPECT_EQ(shot.retracted, 1);
    EXPECT_EQ(row(shot, 2).phase, RequestPhase::kRetracted);
    EXPECT_EQ(row(shot, 2).computed, 0);
    EXPECT_GT(row(shot, 2).output, 0);
  }});
  s.finish_all();
  EXPECT_TRUE(answered);
}

TEST(Snapshot, ShowsThoseThatRunFirstAndCountsTheRest) {
  SchedulerConfig config = small_config();
  config.max_queued_requests = 1000;
  Stepped s(config);
  const int32_t n = int32_t(kSnapshotRequests) + 50;
  for (int32_t i = 1; i <= n; i++) s.send(named(RequestId(i), prompt(3, i), 2));
  s.settle();
  const SchedulerSnapshot shot = ask(s.h);
  ASSERT_EQ(shot.requests.size(), kSnapshotRequests);
  EXPECT_EQ(int64_t(shot.requests.size()) + shot.requests_left_out, n);
  for (int64_t i = 0; i < shot.stats.running; i++)
    EXPECT_NE(shot.requests[size_t(i)].phase, RequestPhase::kWaiting) << i;
  EXPECT_EQ(shot.requests.back().id, kSnapshotRequests);
  s.finish_all();
}

TEST(Snapshot, SharedPrefixesAreFoundWhileUsedAndAfterwards) {
  Stepped s;
  const std::vector<int32_t> common = prompt(12);
  std::vector<int32_t> first = common, second = common;
  for (const int32_t id : {3, 4, 5, 6, 7}) first.push_back(id), second.push_back(id + 20);
  s.send(named(1, first, 30));
  s.settle();
  s.turns(3);
  s.send(named(2, second, 30));
  s.turns(3);
  SchedulerSnapshot shot = ask(s.h);
  ASSERT_EQ(shot.prefixes.size(), 1u);
  EXPECT_EQ(shot.prefixes[0].tokens, 12);
  EXPECT_EQ(shot.prefixes[0].branches, 2);
  EXPECT_EQ(shot.prefixes[0].users, 2);
  EXPECT_EQ(row(shot, 2).cached, 12);
  s.finish_all();
  shot = ask(s.h);
  ASSERT_EQ(shot.prefixes.size(), 1u);
  EXPECT_EQ(shot.prefixes[0].tokens, 12);
  EXPECT_EQ(shot.prefixes[0].users, 0);
  EXPECT_EQ(shot.pages.evictable, shot.pages.tree);
}

// Also while a loop is to be switched and a flush is wanted, which hold up everything else.
TEST(Snapshot, IsAnsweredWhileNothingElseMayBegin) {
  Stepped s;
  s.send(named(1, prompt(10), 6));
  s.settle();
  s.turns(2);
  s.h.flush([](int64_t) {});
  s.h.switch_loop(EventLoop::kNormal);
  s.h.step_host();
  EXPECT_EQ(ask(s.h).requests.size(), 1u);
  s.finish_all();
}

}  // namespace
}  // namespace gapless::testing
