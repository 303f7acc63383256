// Answers that a grammar limits: masks follow their launch, in both loops, and whatever happens to a request
// meanwhile. Random workloads with such requests are in scheduler_property_test.cc and sim_testing/.
#include <gtest/gtest.h>

#include "sampling/testing/hash_grammar.h"
#include "scheduler/testing/harness.h"
#include "scheduler/testing/peer.h"

namespace gapless::testing {
namespace {

class GrammarRows : public ::testing::TestWithParam<EventLoop> {
 protected:
  GrammarRows() : h(small_config(), GetParam()) { h.worker.hold(true); }

  Request limited(RequestId id, int32_t max_tokens, HashGrammar::Options options = {}) {
    options.seed = id;
    options.vocab_size = h.config.vocab_size;
    options.eos_ids = h.config.eos_ids;
    Request r = make_request(id, prompt(6, int32_t(id % 3)), max_tokens);
    r.grammar = std::make_shared<HashGrammar>(std::move(options));
    return r;
  }
  void expect_in_grammar(const Request& r) {
    const auto matcher = r.grammar->new_matcher();
    for (int32_t id : h.got(r.id).ids) EXPECT_TRUE(matcher->accept(id).is_ok()) << r.id;
  }

  Harness h;
};
INSTANTIATE_TEST_SUITE_P(Loops, GrammarRows, ::testing::Values(EventLoop::kNormal, EventLoop::kOverlap),
                         [](const auto& info) { return std::string(event_loop_name(info.param)); });

TEST_P(GrammarRows, StayInTheirGrammarBesideFreeOnes) {
  const Request a = limited(1, 30), b = limited(2, 30), free = make_request(3, prompt(9), 30);
  for (const Request& r : {a, b, free}) h.send(r);
  h.run_until_idle();
  for (const Request& r : {a, b, free}) h.expect_answer(r);
  expect_in_grammar(a);
  expect_in_grammar(b);
  h.expect_nothing_left();
}

TEST_P(GrammarRows, EachChoiceHasItsOwnState) {
  Request r = limited(1, 30);
  r.n = 3;
  h.send(r);
  h.run_until_idle();
  for (int32_t choice = 0; choice < 3; choice++) h.expect_answer(r, choice);
}

TEST_P(GrammarRows, AWholeAnswerEndsAtOnce) {
  const Request r = limited(1, 60, {.ends_one_in = 3});
  h.send(r);
  h.run_until_idle();
  h.expect_answer(r);
  const Received& got = h.got(1);
  EXPECT_EQ(got.finish->reason, FinishReason::kStop);
  EXPECT_EQ(got.finish->matched.index(), 0u) << "nothing was matched: the answer is whole";
  EXPECT_LT(got.ids.size(), 60u);
}

// Its end is banned until then, but where the grammar leaves nothing else the answer is whole.
TEST_P(GrammarRows, MinTokensCannotBreakAGrammar) {
  for (RequestId id = 1; id <= 20; id++) {
    Request r = limited(id, 30, {.allowed_percent = 3, .ends_one_in = 4});
    r.params.min_tokens = 25;
    h.send(r);
    h.run_until_idle();
    h.expect_answer(r);
    EXPECT_EQ(h.got(id).finish->reason == FinishReason::kError, false);
  }
}

// A-JS-7: nothing is asked of a grammar behind the end of its answer, however that ended.
TEST_P(GrammarRows, A_JS_7_AStopStringWithinTheGrammarWinsAndIgnoreEosDoesNotOutliveIt) {
  int32_t by_string = 0, by_grammar = 0;
  for (RequestId id = 1; id <= 40; id++) {
    Request r = limited(id, 60, {.ends_one_in = 8});
    r.stop = {std::string(1, char('a' + id % 5))};
    r.params.ignore_eos = id % 2 == 0;
    h.send(r);
    h.run_until_idle();
    h.expect_answer(r);
    const Finish& finish = *h.got(id).finish;
    ASSERT_EQ(finish.reason, FinishReason::kStop);
    by_string += std::holds_alternative<std::string>(finish.matched);
    by_grammar += std::holds_alternative<std::monostate>(finish.matched);
  }
  EXPECT_GT(by_string, 0);
  EXPECT_GT(by_grammar, 0);
  h.expect_nothing_left();
}

TEST_P(GrammarRows, AGrammarThatGivesUpEndsItsRequestAlone) {
  const Request failing = limited(1, 30, {.ends_one_in = 1'000'000, .fails_after = 4}),
                other = limited(2, 30);
  h.send(failing);
  h.send(other);
  h.run_until_idle();
  const Received& got = h.got(1);
  ASSERT_EQ(got.finish->reason, FinishReason::kError);
  EXPECT_EQ(got.finish->status.message(), "the grammar gave up after 4 tokens");
  EXPECT_EQ(got.ids.size(), 4u);
  h.expect_answer(other);
  h.expect_nothing_left();
}

TEST_P(GrammarRows, AnAbortWhileMasksAreOutDisturbsNobody) {
  const Request aborted = limited(1, 60, {.ends_one_in = 1'000'000}), other = limited(2, 30);
  h.send(aborted);
  h.send(other);
  for (int i = 0; i < 6; i++) h.step();
  h.abort(1);
  h.run_until_idle();
  EXPECT_EQ(h.got(1).finish->reason, FinishReason::kAbort);
  h.expect_answer(other);
  h.expect_nothing_left();
}

// The masks of a batch need the results before it: they are sent when it is the oldest in flight, and not
// before.
TEST(GrammarMasks, AreSentWhenAllResultsBeforeAreKnown) {
  Harness h(small_config(), EventLoop::kOverlap);
  h.worker.hold(true);
  Request r = make_request(1, prompt(6), 30);
  r.grammar = std::make_shared<HashGrammar>(HashGrammar::Options{
      .vocab_size = h.config.vocab_size, .eos_ids = h.config.eos_ids, .ends_one_in = 1'000'000});
  h.send(r);
  h.settle();
  const SchedulerTestPeer peer(*h.scheduler);
  ASSERT_EQ(peer.in_flight().size(), 2u);
  EXPECT_FALSE(peer.in_flight()[0].ticket.waits_for_sampling_info());
  EXPECT_TRUE(peer.in_flight()[1].ticket.waits_for_sampling_info());
  ASSERT_TRUE(h.worker.run_one());
  EXPECT_FALSE(h.worker.run_one()) << "the second batch cannot be sampled yet";
  h.settle();
  EXPECT_FALSE(peer.in_flight()[0].ticket.waits_for_sampling_info());
  h.run_until_idle();
  h.expect_answer(r);
}

// A batch that waits for its masks is taken back like any other.
TEST(GrammarMasks, ARecalledBatchGetsTheMasksOfTheOneThatReplacesIt) {
  Harness h(small_config(), EventLoop::kOverlap);
  h.worker.hold(true);
  Request r = make_request(1, prompt(6), 30), newcomer = make_request(2, prompt(5, 1), 10);
  r.grammar = std::make_shared<HashGrammar>(
      HashGrammar::Options{.vocab_size = h.config.vocab_size, .eos_ids = h.config.eos_ids});
  newcomer.grammar = r.grammar;
  h.send(r);
  h.settle();
  h.send(newcomer);
  h.settle();
  EXPECT_EQ(h.scheduler->stats().recalls, 1);
  h.run_until_idle();
  h.expect_answer(r);
  h.expect_answer(newcomer);
  h.expect_nothing_left();
}

}  // namespace
}  // namespace gapless::testing
