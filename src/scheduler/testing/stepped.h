// The overlap loop, driven step by step: the device stands still until it is told.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "scheduler/testing/harness.h"
#include "scheduler/testing/peer.h"

namespace gapless::testing {

struct Stepped {
  explicit Stepped(SchedulerConfig config = small_config())
      : h(config, EventLoop::kOverlap), peer(*h.scheduler) {
    h.worker.hold(true);
  }

  void send(Request request) {
    requests.push_back(request);
    h.send(std::move(request));
  }
  // The host does what it can: everything sent is taken in, and two batches are in flight if there is work.
  void settle() { h.settle(); }
  // The device computes one batch; the host takes its result and launches the next.
  void turn() {
    compute();
    settle();
  }
  void turns(int n) {
    for (; n > 0; n--) turn();
  }
  // The device computes one batch; the host takes its result, and that is all.
  void complete() {
    compute();
    const uint64_t oldest = peer.in_flight().front().id;
    while (!peer.in_flight().empty() && peer.in_flight().front().id == oldest) h.step_host();
  }
  void finish_all() {
    h.run_until_idle();
    for (const Request& r : requests) {
      for (int32_t choice = 0; choice < r.n; choice++) h.expect_answer_or_cut(r, choice, true);
    }
    h.expect_nothing_left();
  }
  // Ends the test when it waits for something that does not come.
  void compute() {
    if (!h.worker.run_one()) throw std::logic_error("nothing is launched");
  }
  int32_t leased() { return peer.memory().allocator.count(PageState::kLeased); }
  int64_t met(Met what) const { return h.watch->met(what); }
  const ScheduleBatch& youngest() const { return peer.in_flight().back().batch; }
  bool in_youngest(RequestId id) const {
    for (const ScheduledRow& row : youngest().rows()) {
      if (row.req->request().id == id) return true;
    }
    return false;
  }

  Harness h;
  SchedulerTestPeer peer;
  std::vector<Request> requests;
};

}  // namespace gapless::testing
