#include "device/sim/sim_stream.h"

#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace gapless {
namespace {

// A sleep ends this much early and the rest is spun. Measured on 2 virtual CPUs: a sleep of 1.3 ms ends 31 us
// late, 39 us in 90 % of cases. A late event would be charged to the host as a gap.
constexpr double kSpinSeconds = 60e-6;
// A real accelerator does not compete with the host for its cores: this thread goes before the server's,
// where the system lets it.
constexpr int kNiceness = -10;
constexpr unsigned long kTimerSlackNs = 1;  // the default, 50 us, is added to every sleep
constexpr std::byte kPoison{0xff};

void sleep_until(double time) {
  const timespec at{.tv_sec = time_t(time), .tv_nsec = long((time - double(time_t(time))) * 1e9)};
  // Interrupted: the spin does the rest.
  (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

// CPU time of the calling thread: what its work takes on a machine that others use too.
double thread_cpu_seconds() {
  timespec now;
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

const SimCopy* host_copy(const Op& op) {
  return op.name == kSimHostCopy ? static_cast<const SimCopy*>(op.params) : nullptr;
}

}  // namespace

SimStream::SimStream(std::shared_ptr<SimShared> shared)
    : shared_(std::move(shared)),
      clock_(shared_->machine),
      scratch_(static_cast<std::byte*>(std::aligned_alloc(64, kOpScratchBytes)), std::free) {
  CHECK(scratch_ != nullptr, "no memory for {} bytes of scratch", kOpScratchBytes);
  context_.scratch = {scratch_.get(), kOpScratchBytes};
  context_.stream = this;
  context_.fail_fn = [](OpContext& c, Status s) { static_cast<Context&>(c).stream->fail(std::move(s)); };
  context_.end_step_fn = [](OpContext& c) { static_cast<Context&>(c).stream->ended_ = true; };
  std::lock_guard lock(shared_->mutex);
  shared_->streams.push_back(this);
  if (!shared_->stepped) thread_ = NamedThread("sim-device", [this] { thread(); });
}

SimStream::~SimStream() {
  synchronize();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
  std::lock_guard lock(shared_->mutex);
  std::erase(shared_->streams, this);
}

std::shared_ptr<Event> SimStream::submit(std::unique_ptr<OpList> ops) {
  CHECK_LE(ops->ops().size(), size_t{kMaxStepOps});
  for (const Op& op : ops->ops())
    if (const SimCopy* copy = host_copy(op)) std::memset(copy->to, int(kPoison), copy->bytes);
  auto event = std::make_shared<HostEvent>();
  std::lock_guard lock(mutex_);
  queue_.push_back({std::move(ops), event, steady_seconds(), submitted_++});
  changed_.notify_all();
  return event;
}

std::unique_ptr<OpList> SimStream::new_ops() {
  std::lock_guard lock(mutex_);
  if (free_lists_.empty()) return std::make_unique<OpList>();
  auto list = std::move(free_lists_.back());
  free_lists_.pop_back();
  return list;
}

void SimStream::synchronize() {
  if (shared_->stepped) {
    while (advance()) {
    }
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, target = submitted_] { return completed_ >= target; });
}

bool SimStream::advance() {
  CHECK(shared_->stepped, "this device has threads of its own");
  if (!current_ && !next_step(false)) return false;
  next_part();
  return true;
}

void SimStream::thread() {
  (void)prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  if (nice(kNiceness) == -1) errno = 0;
  while (next_step(true))
    while (current_) next_part();
}

// False: there is none. Waiting, that means the stream is being destroyed.
bool SimStream::next_step(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
  if (queue_.empty()) return false;
  current_ = std::move(queue_.front());
  queue_.pop_front();
  part_ = Part::kTake;
  return true;
}

void SimStream::next_part() {
  switch (std::exchange(part_, part_ == Part::kTake ? Part::kCompute : Part::kFinish)) {
    case Part::kTake:
      return take();
    case Part::kCompute:
      return compute();
    case Part::kFinish:
      return finish();
  }
}

void SimStream::take() {
  work_ = {};
  ended_ = false;
  error_.reset();
  pause_at(SimPoint::kStart);
  times_ = {current_->submitted, clock_.start(current_->submitted), 0};
  wait_until(times_.started);
  pause_at(SimPoint::kTake);
  own_work_ = -thread_cpu_seconds();
  run_ops(0, 1);
}

void SimStream::compute() {
  if (shared_->faults && !ended_ && !error_) {
    if (Status failure = shared_->faults->failure(current_->number); !failure.is_ok())
      fail(std::move(failure));
  }
  run_ops(1, current_->ops->ops().size());
  own_work_ += thread_cpu_seconds();
  own_work_done_ = steady_seconds();
}

// A step that an op ended took no time of the machine: it was recalled, and the clock does not know it.
void SimStream::finish() {
  times_.ended = times_.started;
  if (!ended_) {
    const double cost = clock_.cost(work_);
    // Without a thread the ops wait for the test, which says nothing about their work.
    const double own_work_done = shared_->stepped ? times_.started : own_work_done_;
    times_.ended = clock_.end(times_.started, cost, own_work_done);
    shared_->overruns += cost > 0 && times_.ended > times_.started + cost;
    shared_->own_work_ns += int64_t(own_work_ * 1e9);
    ++shared_->steps;
  }
  wait_until(times_.ended);
  pause_at(SimPoint::kCopies);
  if (!ended_ && !error_) copy_to_host();
  pause_at(SimPoint::kEvent);
  complete();
}

// As on every device: the step's list is back in the pool before its event is set.
void SimStream::complete() {
  const std::shared_ptr<HostEvent> event = std::move(current_->event);
  {
    std::lock_guard lock(mutex_);
    current_->ops->clear();
    free_lists_.push_back(std::move(current_->ops));
  }
  current_.reset();
  event->set(std::exchange(error_, std::nullopt).value_or(Status()), times_);
  std::lock_guard lock(mutex_);
  ++completed_;
  changed_.notify_all();
}

void SimStream::run_ops(size_t begin, size_t end) {
  const std::span<const Op> ops = current_->ops->ops();
  for (size_t i = begin; i < std::min(end, ops.size()) && !ended_ && !error_; ++i)
    if (!host_copy(ops[i])) run_op(ops[i]);
}

void SimStream::run_op(const Op& op) {
  try {
    const int32_t chunks = op.chunks(op.params);
    CHECK(chunks >= 0 && chunks <= kMaxOpChunks, "op {} wants {} chunks", op.name, chunks);
    if (op.work) work_ += op.work(op.params);
    context_.begin = 0;
    context_.end = context_.next = chunks;
    for (int32_t chunk = 0; chunk < chunks; ++chunk) op.run(op.params, chunk, context_);
  } catch (const std::exception& e) {
    fail(Status::internal("op {} threw: {}", op.name, e.what()));
  } catch (...) {
    fail(Status::internal("op {} threw", op.name));
  }
}

void SimStream::copy_to_host() {
  for (const Op& op : current_->ops->ops())
    if (const SimCopy* copy = host_copy(op)) std::memcpy(copy->to, copy->from, copy->bytes);
}

void SimStream::fail(Status status) {
  CHECK(!status.is_ok(), "an op fails with an error");
  if (!error_) error_ = std::move(status);
}

// Sleeping alone is too late by the time a wake-up takes, spinning alone takes a core from the host threads.
void SimStream::wait_until(double time) const {
  if (shared_->stepped) return;
  if (time - steady_seconds() > kSpinSeconds) sleep_until(time - kSpinSeconds);
  while (steady_seconds() < time) {
  }
}

void SimStream::pause_at(SimPoint point) const {
  if (shared_->faults) shared_->faults->at(point, current_->number);
}

}  // namespace gapless
