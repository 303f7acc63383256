// Memory for decoding, looked at one step early: a page that is freed now arrives only when the batches that
// name it have completed.
#include <algorithm>

#include "base/check.h"
#include "base/trace_names.h"
#include "scheduler/scheduler.h"

namespace gapless {

// Pages that the rows lack in the step being composed ...
int32_t Scheduler::pages_needed(const std::vector<Req*>& rows) const {
  return int32_t(std::ranges::count_if(rows, [this](const Req* req) {
    return req->kv_launched == int32_t(memory_.rows.row(req->held.slot.id()).size()) * config_.page_size;
  }));
}

// Its last token is in flight: it holds its memory until the result is there, and gives it back then.
bool Scheduler::ends_in_flight(const Req& req) {
  return req.state() == ReqState::kDecode && req.launched_to_length();
}

// ... and in the one after it, where those do not run that must have ended by length.
int32_t Scheduler::pages_needed_next(const std::vector<Req*>& rows) const {
  return int32_t(std::ranges::count_if(rows, [this](const Req* req) {
    if (req->launched_outputs + 1 >= req->params.max_tokens) return false;
    int32_t capacity = int32_t(memory_.rows.row(req->held.slot.id()).size()) * config_.page_size;
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
    const int32_t slot = req->held.slot.id();
    if (req->kv_launched < int32_t(memory_.rows.row(slot).size()) * config_.page_size) continue;
    memory_.allocate(req->held.tail, 1);
    memory_.rows.append_page(req->held.slot, req->held.tail.pages().back());
    batch.add_page_write(*req, memory_);
  }
  if (rows.size() < before) return false;
  if (!rows.empty()) new_token_ratio_.on_decode_step();
  return true;
}

// The request that arrived last goes back, again and again until the others fit. The oldest is never sent
// back; alone it fits, because a request that needs more than the pool is refused at the door.
void Scheduler::retract_decode(std::vector<Req*>& rows) {
  while (pages_needed(rows) > memory_.available_pages()) {
    const bool somebody = retract_one(rows);
    CHECK(somebody, "one request alone needs {} pages, {} are available of {}", pages_needed(rows),
          memory_.available_pages(), memory_.allocator.total());
  }
}

// This step fits. The next one would not, and what is sent back then would arrive a step too late.
void Scheduler::retract_ahead(std::vector<Req*>& rows) {
  while (pages_needed(rows) + pages_needed_next(rows) > memory_.available_pages() + pages_arriving()) {
    if (!retract_one(rows)) return;
  }
}

// False: only the oldest is left.
bool Scheduler::retract_one(std::vector<Req*>& rows) {
  Req *victim = nullptr, *oldest = nullptr;
  for_each_live([&](Req& req) {
    if (!ends_in_flight(req) && (!victim || req.arrival > victim->arrival)) victim = &req;
    if (!oldest || req.arrival < oldest->arrival) oldest = &req;
  });
  if (!victim || victim == oldest) return false;
  std::erase(rows, victim);
  retract(*victim);
  int64_t output = 0, max_tokens = 0, n = 0;
  for_each_live([&](const Req& req) {
    output += req.output_len();
    max_tokens += req.params.max_tokens;
    n++;
  });
  new_token_ratio_.on_retract(output, max_tokens, n);
  return true;
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
