// Reuse of cached prefixes across requests: the A-PC-... reports of the project's catalogue.
#include <gtest/gtest.h>

#include "scheduler/testing/harness.h"

namespace gapless::testing {
namespace {

std::vector<int32_t> concat(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(PrefixReuse, A_PC_2_TheLastTokenIsAlwaysComputed) {
  for (int32_t page : {1, 4, 16}) {
    SchedulerConfig config = small_config();
    config.page_size = page;
    Harness h(config);
    const Request first = make_request(1, prompt(48), 4);
    Request again = first;
    again.id = 2;
    h.send(first);
    h.run_until_idle();
    const int64_t before = h.worker.prefill_tokens();
    h.send(again);
    h.run_until_idle();
    EXPECT_EQ(h.got(2).ids, h.got(1).ids);
    EXPECT_EQ(h.got(2).cached_tokens, 47 / page * page);
    EXPECT_EQ(h.worker.prefill_tokens() - before, 48 - 47 / page * page);
    EXPECT_GE(h.worker.prefill_tokens() - before, 1);
  }
}

TEST(PrefixReuse, A_PC_2_AChatAcrossTheChunkSizeReusesItsTurns) {
  SchedulerConfig config = small_config();
  Harness h(config);
  std::vector<int32_t> history;
  for (RequestId turn = 1; turn <= 5; turn++) {
    history = concat(history, prompt(7, int32_t(turn)));
    const Request r = make_request(turn, history, 8);
    h.send(r);
    h.run_until_idle();
    h.expect_answer(r);
    // Whole pages of prompt and answer but its last token, whose KV was never written.
    EXPECT_EQ(h.got(turn).cached_tokens, turn == 1 ? 0 : (int32_t(history.size()) - 8) / 4 * 4);
    history = concat(history, h.got(turn).ids);
  }
  h.expect_nothing_left();
}

TEST(PrefixReuse, A_PC_3_APrefixIsSharedWhileItsFirstOwnerRuns) {
  Harness h(small_config());
  const std::vector<int32_t> system = prompt(40);
  const Request a = make_request(1, concat(system, prompt(3, 1)), 60);
  h.send(a);
  while (!h.has(1)) h.step();
  const Request b = make_request(2, concat(system, prompt(4, 2)), 4);
  h.send(b);
  while (!h.has(2) || !h.got(2).finish) h.step();
  EXPECT_FALSE(h.got(1).finish) << "the first one still runs";
  EXPECT_EQ(h.got(2).cached_tokens, 40);
  h.run_until_idle();
  h.expect_answer(a);
  h.expect_answer(b);
}

TEST(PrefixReuse, A_PC_3_IdenticalPromptsTogetherAreComputedOnce) {
  for (int32_t page : {1, 16}) {
    SchedulerConfig config = small_config();
    config.page_size = page;
    config.context_length = 1024;
    config.max_total_tokens = 8192;
    config.chunked_prefill_size = 600;
    config.max_running_requests = 16;
    Harness h(config);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 8; id++) {
      requests.push_back(make_request(id, prompt(512), 5));
      h.send(requests.back());
    }
    // One behind them with a prompt of its own is not held up by their waiting.
    requests.push_back(make_request(9, prompt(20, 9), 5));
    h.send(requests.back());
    h.run_until_idle();
    for (const Request& r : requests) h.expect_answer(r);
    EXPECT_LE(h.worker.prefill_tokens() - 20, 512 + 7 * (page + 1));
    EXPECT_LT(h.got(9).steps.front(), h.got(2).steps.front());
    h.expect_nothing_left();
  }
}

TEST(PrefixReuse, A_PC_3_NamespacesDoNotShare) {
  Harness h(small_config());
  Request a = make_request(1, prompt(40), 4), b = make_request(2, prompt(40), 4);
  b.cache_namespace = "tenant";
  h.send(a);
  h.run_until_idle();
  h.send(b);
  h.run_until_idle();
  EXPECT_EQ(h.got(2).cached_tokens, 0);
  h.expect_answer(b);
}

}  // namespace
}  // namespace gapless::testing
