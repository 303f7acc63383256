// Looks at a scheduler before and after each of its steps, and says what must not happen between two of them:
// laws about results, failures and turns that no single answer shows. It also counts the rare events that a
// step met, so that a test can say that it meets them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduler/testing/fake_worker.h"
#include "scheduler/testing/peer.h"
#include "scheduler/testing/received.h"

namespace gapless::testing {

enum class Met : uint8_t {
  kRecall,
  kRecalledAgain,  // the batch that replaced a recalled one was recalled as well
  kRecallAdmits,   // somebody joined by it
  kMemoryStall,
  kRetraction,
  kRetractedInFlight,  // while a launched batch named it
  kPromptLogprobsRetractedInFlight,
  kLateToken,      // kept: of a request that had been retracted meanwhile
  kLateEnd,        // such a token ended it while it waited
  kAbortInFlight,  // a launched batch named it
  kAbortRecalled,  // and that was recalled in the same step
  kAbortRetractedInFlight,
  kFlushInFlight,
  kSwitchInFlight,
  kWastedByStopString,
  kWastedByAbort,
  kDropped,
  kFailedStep,
  kFailedDependant,  // a row behind a failed one
  kCachedPrefix,
};
inline constexpr size_t kMetKinds = size_t(Met::kCachedPrefix) + 1;
const char* met_name(Met what);

class StepWatch {
 public:
  StepWatch(Scheduler& scheduler, const SchedulerConfig& config, const FakeWorker& worker,
            const ReceivedMap& received);

  void on_sent(const SchedulerMessage& message);
  void on_error(ChoiceKey who) { errors_.push_back(who); }
  void before_step();
  void after_step(LoopWait wait, bool inbox_empty);

  int64_t met(Met what) const { return met_[size_t(what)]; }
  const std::array<int64_t, kMetKinds>& all_met() const { return met_; }

 private:
  struct Row {
    ChoiceKey who;
    bool live;      // the admission under which it was launched goes on
    bool finished;  // before this step
    bool prefill, emits, masked, prompt_logprobs;
    int32_t output_index;
  };
  struct Batch {
    uint64_t id;
    std::vector<Row> rows;
  };

  void count(Met what, int64_t n = 1) { met_[size_t(what)] += n; }
  const Finish* finish_of(ChoiceKey who) const;
  void look_at_messages(bool recalled);
  void check_result(const Batch& batch);
  void check_row(const Row& row, RowStatus status);
  void check_late_row(const Row& row, RowStatus status, const Finish& finish);
  void check_errors();
  void check_queue() const;
  void check_launch(uint64_t id, bool recalled);
  void check_budget(const ScheduleBatch& batch) const;
  void check_turn(const Req& req, uint64_t id, bool recalled);
  void look_at_retractions();
  void check_idle() const;

  Scheduler& scheduler_;
  SchedulerTestPeer peer_;
  const SchedulerConfig& config_;
  const FakeWorker& worker_;
  const ReceivedMap& received_;

  std::vector<Batch> in_flight_;   // before the step
  SchedulerStats stats_;           // before the step
  std::vector<RequestId> aborts_;  // sent and not yet taken in
  int64_t flushes_ = 0, switches_ = 0;
  std::vector<ChoiceKey> errors_, expected_errors_;  // of this step
  std::unordered_map<uint32_t, int32_t> missed_;     // epoch -> launches in a row that passed it over
  std::map<ChoiceKey, int32_t> wasted_;
  uint64_t last_id_ = 0, newest_admitted_ = 0;
  std::array<int64_t, kMetKinds> met_{};
};

}  // namespace gapless::testing
