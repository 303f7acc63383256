#include "scheduler/sim_testing/planted_faults.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "sampling/slot_state.h"

namespace gapless::sim_testing {
namespace {

const ModelWorkerBatch& batch_of(const TakeParams& p) {
  return **p.step->batch;
}

// f(row, index of its first token in the step) for the rows that are computed.
template <class F>
void for_each_computed(const TakeParams& p, F f) {
  const std::vector<BatchRow>& rows = batch_of(p).rows;
  int32_t at = 0;
  for (size_t i = 0; i < rows.size(); i++) {
    if (p.step->places[i].status != RowStatus::kOk) continue;
    f(rows[i], at);
    at += rows[i].n_tokens;
  }
}

// f(row, mask) for the rows that were given one.
template <class F>
void for_each_mask(const TakeParams& p, F f) {
  SamplingInfo& info = p.step->info;
  const size_t words = info.rows.empty() ? 0 : info.allowed.size() / info.rows.size();
  size_t at = 0;
  for (const BatchRow& row : batch_of(p).rows) {
    if (!row.masked) continue;
    if (info.rows[at] == RowMask::kAllowed) f(row, std::span(info.allowed).subspan(at * words, words));
    at++;
  }
}

// --- future tokens ---

// The first design: every row of every batch, chunks too, gets the next entry of a ring of three times
// max_running_requests, and a decode row reads the entry that its request was given last.
class RingOfThree : public Fault {
 public:
  explicit RingOfThree(const Workload& w) : ring_(size_t(3 * w.config.max_running_requests)) {}

  void after_take(const TakeParams& p) override {
    for_each_computed(p, [&](const BatchRow& row, int32_t at) {
      const auto last = last_.find(row.slot);
      if (last != last_.end() && last->second.epoch == row.epoch) p.step->ids[at] = ring_[last->second.entry];
    });
  }
  void after_commit(const TakeParams& p) override {
    for_each_computed(p, [&](const BatchRow& row, int32_t at) {
      const size_t entry = next_++ % ring_.size();
      ring_[entry] = row.emits ? p.slots.future_map[row.slot].token : p.step->ids[at];
      if (row.emits) last_[row.slot] = {row.epoch, entry};
    });
  }

 private:
  struct Last {
    uint32_t epoch;
    size_t entry;
  };
  std::vector<int32_t> ring_;
  size_t next_ = 0;
  std::map<int32_t, Last> last_;  // by slot
};

// All chunks of a prompt sample, as its last one does.
class ChunkRowWritesMap : public Fault {
  void edit(ModelWorkerBatch& batch) override {
    for (BatchRow& row : batch.rows) row.emits = true;
  }
};

// --- what is given back ---

class PageFreedEarly : public Fault {
  void after_step(SchedulerTestPeer& peer) override {
    peer.for_each_retiring([](const Req&, int32_t& kv_done, ReqResources& held) {
      kv_done = 0;
      held.tail.release();
    });
  }
};

class LockReleasedEarly : public Fault {
  void at_launch(SchedulerTestPeer& peer) override {
    peer.for_each_retiring([](const Req&, int32_t& kv_done, ReqResources& held) {
      kv_done = 0;
      held.prefix.release();
    });
  }
};

// The last row of a request that ended counts as computed.
class DroppedRowInserted : public Fault {
  void after_step(SchedulerTestPeer& peer) override {
    peer.for_each_retiring([this](const Req& req, int32_t& kv_done, ReqResources&) {
      if (req.state() != ReqState::kFinished || kv_done == req.len()) return;
      kv_done += seen_.emplace(req.request().id, req.choice).second;
    });
  }
  std::set<std::pair<RequestId, int32_t>> seen_;
};

// --- results ---

class EpochIgnored : public Fault {
  void before_step(SchedulerTestPeer& peer) override {
    if (peer.in_flight().empty()) return;
    for (const ScheduledRow& row : peer.in_flight().front().batch.rows())
      const_cast<ScheduledRow&>(row).epoch = row.req->epoch;
  }
};

class CopyDoneNotAwaited : public Fault {
  bool event_before_copies() const override { return true; }
};

// The memory of a launch is used again by the next one.
class RingOfOne : public Fault {
  void at_launch(SchedulerTestPeer& peer) override { peer_.emplace(peer); }
  void on_submit(const TakeParams& p) override {
    if (before_ && is_in_flight(before_id_) && before_ != p.step) {
      std::memset(before_->host_places, 0xff, batch_of(p).rows.size() * sizeof(Step::RowPlace));
      before_->reset(Frozen(from_bytes(to_bytes(batch_of(p)))), *p.sampler);
    }
    before_ = p.step;
    before_id_ = p.launch->batch_id;
  }
  bool is_in_flight(uint64_t id) const {
    return std::ranges::any_of(peer_->in_flight(), [id](const InFlight& f) { return f.id == id; });
  }
  std::optional<SchedulerTestPeer> peer_;
  Step* before_ = nullptr;
  uint64_t before_id_ = 0;
};

// --- sampling state ---

// Names a private member: an explicit instantiation may.
template <auto Member>
struct CountsOf {
  friend auto& counts_of(SlotState& state) { return state.*Member; }
};
auto& counts_of(SlotState& state);
template struct CountsOf<&SlotState::counts_>;

// What the sampler counts is what was known a step ago, as if the counts were made when the batch is
// composed.
class StaleCount : public Fault {
  void after_commit(const TakeParams& p) override {
    for_each_computed(p, [&](const BatchRow& row, int32_t) {
      if (!row.emits) return;
      SlotState& state = *p.slots.states[row.slot];
      const int32_t token = p.slots.future_map[row.slot].token;
      Late& late = late_[row.slot];
      if (late.epoch == row.epoch) add(state, late.token, 1);
      add(state, token, -1);
      late = {row.epoch, token};
    });
  }
  static void add(SlotState& state, int32_t token, int32_t n) {
    for (auto& count : counts_of(state)) {
      if (count.token == token) count.outputs += n;
    }
  }
  struct Late {
    uint32_t epoch = 0;
    int32_t token = 0;
  };
  std::map<int32_t, Late> late_;  // by slot
};

class SlotInitSkipped : public Fault {
  void edit(ModelWorkerBatch& batch) override { batch.slot_inits.clear(); }
};

// The slot is given to the request, but what is sampled with is still its former owner's.
class FormerOwnersState : public Fault {
  void after_take(const TakeParams& p) override {
    for (size_t i = 0; i < p.step->inits.size(); i++) {
      SlotStatePtr& former = p.step->inits[i];
      if (!former) continue;
      SlotState*& state = p.slots.states[batch_of(p).slot_inits[i].slot];
      SlotState* const meant = std::exchange(state, former.release());
      former.reset(meant);
    }
  }
};

// --- masks ---

// Every mask is the one that its answer was given for the token before.
class MaskOneStepStale : public Fault {
  void before_masks(const TakeParams& p) override {
    for_each_mask(p, [&](const BatchRow& row, std::span<uint32_t> mask) {
      std::vector<uint32_t>& last = last_[{row.slot, row.epoch}];
      std::vector<uint32_t> now(mask.begin(), mask.end());
      if (!last.empty()) std::ranges::copy(last, mask.begin());
      last = std::move(now);
    });
  }
  std::map<std::pair<int32_t, uint32_t>, std::vector<uint32_t>> last_;
};

class MaskOfNeighbour : public Fault {
  void before_masks(const TakeParams& p) override {
    std::vector<uint32_t> neighbours;
    for_each_mask(p, [&](const BatchRow&, std::span<uint32_t> mask) {
      std::vector<uint32_t> own(mask.begin(), mask.end());
      if (!neighbours.empty()) std::ranges::copy(neighbours, mask.begin());
      neighbours = std::move(own);
    });
  }
};

// --- rows ---

class MixedRowsShifted : public Fault {
  void after_take(const TakeParams& p) override {
    if (batch_of(p).mode != ForwardMode::kMixed || p.step->counts->rows == 0) return;
    std::rotate(p.step->ids, p.step->ids + 1, p.step->ids + p.step->counts->rows);
  }
};

// The list of a request's tokens keeps what was written there when its token was not known yet.
class PlaceholderInList : public Fault {
  void after_step(SchedulerTestPeer& peer) override {
    peer.for_each_live([](Req& req) {
      if (req.output_len() > 0) req.ids.back() = placeholder(req.held.slot.id());
    });
  }
};

class PlaceholderInAnswer : public Fault {
  void after_commit(const TakeParams& p) override {
    const std::vector<BatchRow>& rows = batch_of(p).rows;
    for (size_t i = 0; i < rows.size(); i++) {
      const Step::RowPlace& place = p.step->places[i];
      if (place.status == RowStatus::kOk && rows[i].output_index == 3 && rows[i].emits)
        p.step->results[place.sampled].token = placeholder(rows[i].slot);
    }
  }
};

template <class F>
std::unique_ptr<Fault> make(const Workload& w) {
  if constexpr (std::is_constructible_v<F, const Workload&>) {
    return std::make_unique<F>(w);
  } else {
    return std::make_unique<F>();
  }
}

}  // namespace

const std::vector<PlantedFault>& planted_faults() {
  static const std::vector<PlantedFault> kFaults{
      {"RingOfThreeTimesMaxRunning", Flavour::kBurst, 60, make<RingOfThree>},
      {"ChunkRowWritesTheMap", Flavour::kGeneral, 10, make<ChunkRowWritesMap>},
      {"PageFreedOneStepEarly", Flavour::kTight, 25, make<PageFreedEarly>},
      {"LockReleasedEarly", Flavour::kTight, 60, make<LockReleasedEarly>},
      {"DroppedRowsKvInserted", Flavour::kConversation, 60, make<DroppedRowInserted>},
      {"EpochIgnored", Flavour::kFailures, 60, make<EpochIgnored>},
      {"CopyDoneNotAwaited", Flavour::kGeneral, 5, make<CopyDoneNotAwaited>},
      {"RingOfOne", Flavour::kGeneral, 5, make<RingOfOne>},
      {"StalePenaltyCount", Flavour::kGeneral, 15, make<StaleCount>},
      {"SlotInitSkipped", Flavour::kGeneral, 3, make<SlotInitSkipped>},
      {"SamplingStateOfFormerOwner", Flavour::kGeneral, 5, make<FormerOwnersState>},
      {"MaskOneStepStale", Flavour::kGeneral, 10, make<MaskOneStepStale>},
      {"MaskOfNeighbour", Flavour::kGeneral, 40, make<MaskOfNeighbour>},
      {"MixedRowsShifted", Flavour::kGeneral, 20, make<MixedRowsShifted>},
      {"PlaceholderInOutputList", Flavour::kTight, 10, make<PlaceholderInList>},
      {"PlaceholderInAnswer", Flavour::kGeneral, 3, make<PlaceholderInAnswer>}};
  return kFaults;
}

}  // namespace gapless::sim_testing
