// The conservation laws: at every moment each KV page is in exactly one of {free, tree, private to a request,
// leased}, each slot free or somebody's, each lock a request's. Tests check them after every step; a server
// when it goes idle, where it heals.
#include <spdlog/spdlog.h>

#include "scheduler/scheduler.h"

namespace gapless {

std::string Scheduler::check_memory() const {
  if (std::string problem = memory_.allocator.check_integrity(); !problem.empty()) return problem;
  if (std::string problem = memory_.tree.check_integrity(); !problem.empty()) return problem;
  std::vector<PageState> owned;
  if (std::string problem = check_pages(owned); !problem.empty()) return problem;
  if (std::string problem = check_requests(); !problem.empty()) return problem;
  if (const auto slots = owned_slots(); int32_t(slots.size()) != memory_.rows.used_slots()) {
    return fmt::format("{} slots are in use, {} have an owner", memory_.rows.used_slots(), slots.size());
  }
  int64_t locks = 0;
  for_each_live([&](const Req& req) { locks += bool(req.held.prefix); });
  for (const Retiring& r : retiring_) locks += bool(r.held.prefix);
  if (locks != memory_.tree.handles()) {
    return fmt::format("{} locks on the tree, {} have an owner", memory_.tree.handles(), locks);
  }
  return {};
}

// Asks every owner for its pages, and compares with what the allocator thinks.
std::string Scheduler::check_pages(std::vector<PageState>& owned) const {
  std::string problem;
  owned.assign(size_t(memory_.allocator.total()) + 1, PageState::kFree);
  const auto claim = [&](int32_t page, PageState state) {
    if (owned[page] != PageState::kFree && problem.empty()) {
      problem =
          fmt::format("page {} is {} and {}", page, page_state_name(owned[page]), page_state_name(state));
    }
    owned[page] = state;
  };
  memory_.tree.for_each_page([&](int32_t page) { claim(page, PageState::kTree); });
  for_each_live([&](const Req& req) {
    for (int32_t page : req.held.tail.pages()) claim(page, PageState::kPrivate);
  });
  for (const Retiring& r : retiring_) {
    for (int32_t page : r.held.tail.pages()) claim(page, PageState::kLeased);
  }
  for (int32_t page = 1; page <= memory_.allocator.total() && problem.empty(); page++) {
    if (owned[page] == memory_.allocator.state(page)) continue;
    problem = fmt::format("page {} is {}, its owner says {}", page,
                          page_state_name(memory_.allocator.state(page)), page_state_name(owned[page]));
  }
  return problem;
}

std::string Scheduler::check_requests() const {
  std::string problem;
  const auto expect = [&](bool ok, const Req& req, const char* what) {
    if (!ok && problem.empty()) {
      problem = fmt::format("request {}.{} ({}): {}", req.request().id, req.choice,
                            req_state_name(req.state()), what);
    }
  };
  for_each_live([&](const Req& req) {
    const auto row = memory_.rows.row(req.held.slot.id());
    const auto tail = req.held.tail.pages();
    const int32_t shared = req.held.prefix.n_pages();
    expect(int32_t(row.size()) == shared + req.held.tail.size(), req, "its row is not its pages");
    expect(std::equal(tail.begin(), tail.end(), row.end() - tail.size(), row.end()), req,
           "its row names other pages");
    for (int32_t page : row.first(std::min<size_t>(shared, row.size()))) {
      expect(memory_.allocator.state(page) == PageState::kTree, req, "a shared page has left the tree");
    }
    expect(req.kv_launched <= int32_t(row.size()) * config_.page_size, req, "positions without a page");
    expect(req.kv_done <= req.kv_launched && req.kv_done <= req.len(), req, "positions out of order");
    expect(shared * config_.page_size <= req.kv_done, req, "shares pages that are not computed");
    expect(!req.retracted, req, "is retracted and runs");
  });
  for (const Req* req : waiting_) {
    expect(req->state() == ReqState::kWaiting, *req, "is in the queue");
    expect(!req->held.slot && !req->held.prefix && req->held.tail.size() == 0, *req, "holds memory");
  }
  for (const Req* req : finished_) {
    expect(!req->held.slot && !req->held.prefix && req->held.tail.size() == 0, *req, "holds memory");
  }
  if (in_flight_.empty() && writing_.size() + retiring_.size() > 0 && problem.empty()) {
    problem = "nothing is in flight, but pages are being written or retiring";
  }
  return problem;
}

std::vector<int32_t> Scheduler::owned_slots() const {
  std::vector<int32_t> slots;
  for_each_live([&](const Req& req) { slots.push_back(req.held.slot.id()); });
  for (const Retiring& r : retiring_) slots.push_back(r.held.slot.id());
  return slots;
}

// Nothing runs or waits, so the laws reduce to counts: every page is free or in the tree, no slot is taken
// and nothing locked. Only when these do not hold the owners are asked one by one, which takes milliseconds
// on a large pool.
void Scheduler::on_idle() {
  new_token_ratio_.reset();
  last_step_ended_ = 0;
  const bool whole =
      memory_.allocator.free_pages() + memory_.tree.total_pages() == memory_.allocator.total() &&
      memory_.tree.evictable_pages() == memory_.tree.total_pages() && memory_.rows.used_slots() == 0;
  if (!whole) heal_memory(check_memory());
  update_gauges();
}

// A leak is our bug, but no reason to end a server: what nobody owns is taken back, and the counter says that
// it happened.
void Scheduler::heal_memory(const std::string& problem) {
  std::vector<PageState> owned;
  check_pages(owned);
  const int32_t pages = memory_.allocator.rebuild(owned);
  const int32_t slots = memory_.rows.rebuild(owned_slots());
  metrics_.kv_healed.add(std::max(pages + slots, 1));
  spdlog::error("KV memory does not add up: {}. Took back {} pages and {} request slots.", problem, pages,
                slots);
}

}  // namespace gapless
