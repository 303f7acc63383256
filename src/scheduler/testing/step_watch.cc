#include "scheduler/testing/step_watch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gapless::testing {

namespace {
ChoiceKey key_of(const Req& req) {
  return {req.request().id, req.choice};
}
std::string name_of(ChoiceKey who) {
  return fmt::format("request {}.{}", who.first, who.second);
}
}  // namespace

const char* met_name(Met what) {
  static constexpr const char* kNames[] = {"recall",
                                           "recalled again",
                                           "recall admits somebody",
                                           "memory stall",
                                           "retraction",
                                           "retracted in flight",
                                           "prompt logprobs retracted in flight",
                                           "late token kept",
                                           "late token ends",
                                           "abort in flight",
                                           "abort of a recalled row",
                                           "abort of a retracted row in flight",
                                           "flush in flight",
                                           "switch in flight",
                                           "row wasted by a stop string",
                                           "row wasted by an abort",
                                           "row dropped by the device",
                                           "failed step",
                                           "failed dependant",
                                           "cached prefix"};
  static_assert(std::size(kNames) == kMetKinds);
  return kNames[size_t(what)];
}

StepWatch::StepWatch(Scheduler& scheduler, const SchedulerConfig& config, const FakeWorker& worker,
                     const ReceivedMap& received)
    : scheduler_(scheduler), peer_(scheduler), config_(config), worker_(worker), received_(received) {}

void StepWatch::on_sent(const SchedulerMessage& message) {
  if (const auto* abort = std::get_if<AbortRequest>(&message)) aborts_.push_back(abort->id);
  flushes_ += std::holds_alternative<FlushCache>(message);
  switches_ += std::holds_alternative<SwitchLoop>(message);
}

void StepWatch::before_step() {
  stats_ = scheduler_.stats();
  errors_.clear();
  in_flight_.clear();
  for (const InFlight& launched : peer_.in_flight()) {
    Batch& batch = in_flight_.emplace_back(Batch{launched.id, {}});
    for (const ScheduledRow& row : launched.batch.rows()) {
      const bool finished = row.req->state() == ReqState::kFinished;
      batch.rows.push_back({.who = key_of(*row.req),
                            .live = !finished && row.req->epoch == row.epoch,
                            .finished = finished,
                            .prefill = row.prefill,
                            .emits = row.emits,
                            .masked = row.masked,
                            .prompt_logprobs = row.req->wants_prompt_logprobs(),
                            .output_index = row.output_index});
    }
  }
}

void StepWatch::after_step(LoopWait wait, bool inbox_empty) {
  const SchedulerStats now = scheduler_.stats();
  const auto& launched = peer_.in_flight();
  const bool recalled = now.recalls > stats_.recalls;
  const bool processed =
      !in_flight_.empty() && (launched.empty() || launched.front().id != in_flight_.front().id);
  count(Met::kRecall, now.recalls - stats_.recalls);
  count(Met::kMemoryStall, now.memory_stalls - stats_.memory_stalls);
  count(Met::kRetraction, now.retractions - stats_.retractions);
  count(Met::kCachedPrefix, now.cached_tokens > stats_.cached_tokens);
  met_[size_t(Met::kRecalledAgain)] = worker_.recalled_again();
  if (recalled)
    count(Met::kRecallAdmits, launched.back().batch.rows().size() > in_flight_.back().rows.size());
  if (inbox_empty) look_at_messages(recalled);
  if (processed) check_result(in_flight_.front());
  check_errors();
  check_queue();
  if (now.retractions > stats_.retractions) look_at_retractions();
  if (!launched.empty() && launched.back().id > last_id_) check_launch(launched.back().id, recalled);
  if (wait == LoopWait::kRequests) check_idle();
}

const Finish* StepWatch::finish_of(ChoiceKey who) const {
  const auto it = received_.find(who);
  return it != received_.end() && it->second.finish ? &*it->second.finish : nullptr;
}

// What was sent has just been taken in.
void StepWatch::look_at_messages(bool recalled) {
  for (RequestId id : std::exchange(aborts_, {})) {
    for (const Batch& batch : in_flight_) {
      for (const Row& row : batch.rows) {
        if (row.who.first != id || row.finished) continue;
        count(row.live ? Met::kAbortInFlight : Met::kAbortRetractedInFlight);
        if (recalled && &batch == &in_flight_.back()) count(Met::kAbortRecalled);
      }
    }
  }
  if (!in_flight_.empty()) {
    count(Met::kFlushInFlight, flushes_);
    count(Met::kSwitchInFlight, switches_);
  }
  flushes_ = switches_ = 0;
}

// A failed step takes down the rows of those who go on, and nobody else; every other row did what it was
// launched for, or its request had ended.
void StepWatch::check_result(const Batch& batch) {
  const FakeWorker::Step& step = worker_.step_of(batch.id);
  count(Met::kFailedStep, step.failed);
  ASSERT_EQ(step.status.size(), batch.rows.size());
  for (size_t i = 0; i < batch.rows.size(); i++) {
    const Row& row = batch.rows[i];
    if (!step.failed) {
      check_row(row, step.status[i]);
    } else if (row.live) {
      const Finish* finish = finish_of(row.who);
      // It may have been aborted at the beginning of this very step.
      if (!finish || finish->reason != FinishReason::kAbort) expected_errors_.push_back(row.who);
    }
  }
}

void StepWatch::check_row(const Row& row, RowStatus status) {
  const Finish* finish = finish_of(row.who);
  if (row.finished || (finish && finish->reason == FinishReason::kAbort)) {
    ASSERT_TRUE(finish) << name_of(row.who) << " has finished without a last delta";
    return check_late_row(row, status, *finish);
  }
  ASSERT_EQ(status, RowStatus::kOk) << name_of(row.who) << " has not ended";
  if (!row.emits) return;
  const auto it = received_.find(row.who);
  ASSERT_TRUE(it != received_.end()) << name_of(row.who) << ": its first token is lost";
  ASSERT_EQ(int32_t(it->second.ids.size()), row.output_index + 1) << name_of(row.who);
  if (row.live) return;
  count(Met::kLateToken);
  count(Met::kLateEnd, finish != nullptr);
}

// No row is wasted that could be known: an end by length is known before the launch, one by a token is known
// to the device, and any end to who makes the masks of rows with a grammar.
void StepWatch::check_late_row(const Row& row, RowStatus status, const Finish& finish) {
  const bool aborted = finish.reason == FinishReason::kAbort;
  const bool stopped = finish.reason == FinishReason::kStop;
  const std::string who = name_of(row.who);
  switch (status) {
    case RowStatus::kOk:
      EXPECT_TRUE(aborted || (stopped && !row.masked && std::holds_alternative<std::string>(finish.matched)))
          << who << " ended by " << int(finish.reason) << " and was computed all the same";
      count(aborted ? Met::kWastedByAbort : Met::kWastedByStopString);
      EXPECT_LE(++wasted_[row.who], aborted ? int32_t(kMaxOutstanding) : 1) << who;
      break;
    case RowStatus::kDropped:
      EXPECT_TRUE(aborted || (stopped && std::holds_alternative<int32_t>(finish.matched)) || row.masked)
          << who << " was dropped and ended by " << int(finish.reason);
      count(Met::kDropped);
      break;
    case RowStatus::kFailed:
      EXPECT_TRUE(aborted || finish.reason == FinishReason::kError) << who << " failed behind nothing";
      count(Met::kFailedDependant);
      break;
  }
}

void StepWatch::check_errors() {
  std::ranges::sort(errors_);
  std::ranges::sort(expected_errors_);
  EXPECT_EQ(errors_, expected_errors_) << "those who fail are not those of the failed step";
  errors_.clear();
  expected_errors_.clear();
}

// Who was sent back keeps nothing of the admission that ended, whatever comes late.
void StepWatch::check_queue() const {
  for (const Req* req : peer_.waiting_reqs()) {
    if (!req->retracted) break;
    EXPECT_TRUE(req->epoch == 0 && req->kv_done == 0 && req->kv_launched == 0) << name_of(key_of(*req));
  }
}

void StepWatch::look_at_retractions() {
  for (const Req* req : peer_.waiting_reqs()) {
    if (!req->retracted || req->in_flight == 0) continue;
    count(Met::kRetractedInFlight);
    for (const Batch& batch : in_flight_) {
      for (const Row& row : batch.rows) {
        if (row.who == key_of(*req) && row.prefill && row.prompt_logprobs)
          count(Met::kPromptLogprobsRetractedInFlight);
      }
    }
  }
}

void StepWatch::check_launch(uint64_t id, bool recalled) {
  last_id_ = id;
  EXPECT_FALSE(peer_.switch_pending()) << "batch " << id << " is launched while the pipeline shall drain";
  check_budget(peer_.in_flight().back().batch);
  peer_.for_each_live([&](const Req& req) { check_turn(req, id, recalled); });
  if (config_.policy != SchedulePolicy::kFcfs || config_.radix_cache) return;
  peer_.for_each_live(
      [&](const Req& req) { newest_admitted_ = std::max(newest_admitted_, req.arrival + 1); });
  for (const Req* req : peer_.waiting_reqs()) {
    if (req->retracted) continue;
    EXPECT_GE(req->arrival + 1, newest_admitted_) << name_of(key_of(*req)) << " was overtaken";
    break;
  }
}

// Recalled or not, a step computes no more prompt tokens than it may.
void StepWatch::check_budget(const ScheduleBatch& batch) const {
  const int32_t tokens = batch.n_prefill_tokens(), chunk = config_.chunked_prefill_size;
  if (chunk >= 0) {
    EXPECT_LE(tokens, std::max(chunk - batch.n_decode_rows(), (chunk + 3) / 4));
  }
  EXPECT_TRUE(tokens <= config_.max_prefill_tokens || batch.n_prefill_rows() == 1) << tokens;
  EXPECT_TRUE(config_.mixed_chunk || batch.mode() != ForwardMode::kMixed);
}

// Whoever runs gets its turn: in each mixed step, else after a bounded number of others.
void StepWatch::check_turn(const Req& req, uint64_t id, bool recalled) {
  if (req.last_batch_id == id || req.launched_to_length()) {
    missed_.erase(req.epoch);
    return;
  }
  const bool decodes = req.state() == ReqState::kDecode;
  const int32_t limit = config_.mixed_chunk ? 0 : decodes ? config_.max_consecutive_prefill : 1;
  // A batch that replaces a recalled one is the same turn.
  const int32_t missed = recalled ? missed_[req.epoch] : ++missed_[req.epoch];
  EXPECT_LE(missed, limit) << name_of(key_of(req)) << " was passed over, batch " << id;
}

void StepWatch::check_idle() const {
  EXPECT_TRUE(peer_.waiting_reqs().empty() && peer_.in_flight().empty()) << "the loop sleeps on work";
  peer_.for_each_live([](const Req& req) { ADD_FAILURE() << name_of(key_of(req)) << " is left to sleep"; });
  EXPECT_FALSE(peer_.flush_or_switch_pending()) << "the loop sleeps on a flush or switch";
}

}  // namespace gapless::testing
