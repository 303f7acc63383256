// Memory for decoding, looked at one step early: a page that is freed now arrives only when the batches that
// name it have completed.
#include <algorithm>

#include "base/check.h"
#include "base/trace_names.h"
#include "scheduler/scheduler.h"

namespace gapless {

// Positions that its pages hold.
int32_t Scheduler::kv_capacity(const Req& req) const {
  return int32_t(memory_.rows.row(req.held.slot.id()).size()) * config_.page_size;
}

// Pages that the rows lack in the step being composed ...
int32_t Scheduler::pages_needed(const std::vector<Req*>& rows) const {
  return int32_t(
      std::ranges::count_if(rows, [this](const Req* req) { return req->kv_launched == kv_capacity(*req); }));
}

// Its last token is in flight: it holds its memory until the result is there, and gives it back then.
bool Scheduler::ends_in_flight(const Req& req) {
  return req.state() == ReqState::kDecode && req.launched_to_length();
}

// ... and in the one after it, where those do not run that must have ended by length.
int32_t Scheduler::pages_needed_next(const std::vector<Req*>& rows) const {
  return int32_t(std::ranges::count_if(rows, [this](const Req* req) {
    if (req->launched_outputs + 1 >= req->params.max_tokens) return false;
    int32_t capacity = kv_capacity(*req);
    if (req->kv_launched == capacity) capacity += config_.page_size;
    return req->kv_launched + 1 == capacity;
  }));
}

// Pages whose last launched batch is in flight: they are there for the step after the one being composed.
int32_t Scheduler::pages_arriving() const {
  int32_t pages = 0;
  for (const Retiring& r : retiring_) pages += r.held.tail.size();
  for (const Req* req : running_) {
    if (ends_in_flight(*req)) pages += req->held.tail.size();
  }
  return pages;
}

// True: the step does not fit, but the result in flight may give back what it lacks. It is processed first;
// the device waits meanwhile.
bool Scheduler::memory_stall(const std::vector<Req*>& rows) {
  if (in_flight_.empty() || pages_needed(rows) <= memory_.available_pages()) return false;
  if (std::exchange(stalled_by_, in_flight_.back().id) != in_flight_.back().id) {
    metrics_.memory_stalls.add();
    const double now = steady_seconds();
    trace_.add(trace::kStall, now, now, int64_t(stalled_by_));
  }
  return true;
}

bool Scheduler::update_running_batch(ScheduleBatch& batch, std::vector<Req*>& rows) {
  const size_t before = rows.size();
  if (in_flight_.empty()) {
    retract_decode(rows);
  } else {
    retract_ahead(rows);
  }
  for (Req* req : rows) {
    if (req->kv_launched < kv_capacity(*req)) continue;
    memory_.allocate(req->held.tail, 1);
    memory_.rows.append_page(req->held.slot, req->held.tail.pages().back());
    batch.add_page_write(*req, memory_);
  }
  if (rows.size() < before) return false;
  if (!rows.empty()) new_token_ratio_.on_decode_step();
  return true;
}

// Alone the oldest fits, because a request that needs more than the pool is refused at the door.
void Scheduler::retract_decode(std::vector<Req*>& rows) {
  const bool fits = retract_until(rows, [&] { return pages_needed(rows) <= memory_.available_pages(); });
  CHECK(fits, "one request alone needs {} pages, {} are available of {}", pages_needed(rows),
        memory_.available_pages(), memory_.allocator.total());
}

// This step fits. The next one would not, and what is sent back then would arrive a step too late.
void Scheduler::retract_ahead(std::vector<Req*>& rows) {
  retract_until(rows, [&] {
    return pages_needed(rows) + pages_needed_next(rows) <= memory_.available_pages() + pages_arriving();
  });
}

// The request that arrived last goes back, again and again until the others fit. False: they do not, and only
// the oldest is left, which is never sent back.
template <class Fits>
bool Scheduler::retract_until(std::vector<Req*>& rows, const Fits& fits) {
  if (fits()) return true;
  Req* victim = retraction_victim();
  if (!victim) return false;
  bool fitting = false;
  for (; victim && !fitting; victim = retraction_victim()) {
    std::erase(rows, victim);
    retract(*victim);
    fitting = fits();
  }
  int64_t output = 0, max_tokens = 0, n = 0;
  for_each_live([&](const Req& req) {
    output += req.output_len();
    max_tokens += req.params.max_tokens;
    n++;
  });
  new_token_ratio_.on_retract(output, max_tokens, n);
  return fitting;
}

Req* Scheduler::retraction_victim() const {
  Req *victim = nullptr, *oldest = nullptr;
  for_each_live([&](Req& req) {
    if (!ends_in_flight(req) && (!victim || req.arrival > victim->arrival)) victim = &req;
    if (!oldest || req.arrival < oldest->arrival) oldest = &req;
  });
  return victim == oldest ? nullptr : victim;
}

void Scheduler::retract(Req& req) {
  metrics_.retractions.add();
  release(req);
  std::erase(running_, &req);
  if (chunked_req_ == &req) chunked_req_ = nullptr;
  req.reset_for_retract();
  const auto place = std::ranges::find_if(
      waiting_, [&](const Req* other) { return !other->retracted || other->arrival > req.arrival; });
  waiting_.insert(place, &req);
}

}  // namespace gapless
