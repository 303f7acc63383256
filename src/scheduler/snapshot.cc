#include "scheduler/snapshot.h"

#include <algorithm>

#include "base/trace_names.h"
#include "scheduler/scheduler.h"

namespace gapless {

namespace {

RequestPhase phase_of(const Req& req) {
  if (req.state() == ReqState::kWaiting)
    return req.retracted ? RequestPhase::kRetracted : RequestPhase::kWaiting;
  return req.state() == ReqState::kPrefill ? RequestPhase::kPrefill : RequestPhase::kDecode;
}

RequestRow row_of(const Req& req, Clock::time_point now) {
  const double age = std::chrono::duration<double>(now - req.request().arrival).count();
  return {.id = req.request().id,
          .rid = req.request().rid,
          .choice = req.choice,
          .phase = phase_of(req),
          .prompt = req.prompt_len,
          .cached = std::max(req.group.cached_tokens, 0),
          .computed = req.kv_done,
          .output = req.output_len(),
          .max_output = req.params.max_tokens,
          .age_seconds = age,
          .queue_seconds = req.queue_seconds < 0 ? age : req.queue_seconds};
}

KvPages pages_of(const KvMemory& memory, int32_t page_size) {
  return {.page_size = page_size,
          .free = memory.allocator.free_pages(),
          .tree = memory.tree.total_pages(),
          .in_use = memory.allocator.count(PageState::kPrivate),
          .leased = memory.allocator.count(PageState::kLeased),
          .evictable = memory.tree.evictable_pages()};
}

}  // namespace

const char* request_phase_name(RequestPhase phase) {
  static constexpr const char* kNames[] = {"waiting", "prefill", "decode", "retracted"};
  return kNames[size_t(phase)];
}

void Scheduler::handle(const TakeSnapshot& ask) {
  TraceSpan span(trace_, trace::kSnapshot);
  SchedulerSnapshot taken = snapshot();
  span.set_args(int64_t(taken.requests.size()));
  span.end();
  ask.taken(std::move(taken));
}

SchedulerSnapshot Scheduler::snapshot() {
  retire_finished();  // of an abort that came with the question
  update_gauges();
  SchedulerSnapshot taken;
  taken.at = steady_seconds();
  taken.stats = read_stats(metrics_);
  // Retracted ones are in front.
  const auto fresh = std::ranges::find_if_not(waiting_, [](const Req* req) { return req->retracted; });
  taken.retracted = fresh - waiting_.begin();
  list_requests(taken);
  taken.pages = pages_of(memory_, config_.page_size);
  taken.cache_nodes = memory_.tree.nodes();
  std::vector<const CacheHandle*> held;
  for_each_live([&](const Req& req) {
    if (held.size() < kSnapshotNodes && req.held.prefix) held.push_back(&req.held.prefix);
  });
  taken.prefixes = memory_.tree.shared_prefixes(held, kSnapshotNodes, kSnapshotPrefixes);
  return taken;
}

void Scheduler::list_requests(SchedulerSnapshot& taken) const {
  const Clock::time_point now = Clock::now();
  taken.requests.reserve(std::min(size_t(n_live()) + waiting_.size(), kSnapshotRequests));
  for_each_live([&](const Req& req) {
    if (taken.requests.size() < kSnapshotRequests) {
      taken.requests.push_back(row_of(req, now));
    } else {
      taken.requests_left_out++;
    }
  });
  const size_t shown = std::min(waiting_.size(), kSnapshotRequests - taken.requests.size());
  for (size_t i = 0; i < shown; i++) taken.requests.push_back(row_of(*waiting_[i], now));
  taken.requests_left_out += int64_t(waiting_.size() - shown);
}

}  // namespace gapless
