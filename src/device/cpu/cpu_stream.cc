#include "device/cpu/cpu_stream.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gapless {
namespace {

// Tells the core that this is a spin: it saves power and leaves more to a sibling thread.
void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using Clock = std::chrono::steady_clock;

// claim_ = [op:16 | chunks:24 | next:24]. `next` runs past `chunks` by at most one share per worker, together
// fewer than kMaxOpChunks, so it never carries.
constexpr int kFieldBits = 24;
constexpr uint64_t kFieldMask = (uint64_t{1} << kFieldBits) - 1;
static_assert(2 * int64_t{kMaxOpChunks} <= int64_t{1} << kFieldBits);
constexpr int32_t kBeforeFirstOp =
    0xffff;  // its one chunk stands for the right to lead a step that was just submitted
static_assert(kMaxStepOps < kBeforeFirstOp);

constexpr uint64_t pack(int32_t op, int32_t chunks, int32_t next) {
  return uint64_t(op) << (2 * kFieldBits) | uint64_t(chunks) << kFieldBits | uint64_t(next);
}
constexpr int32_t op_of(uint64_t word) {
  return int32_t(word >> (2 * kFieldBits));
}
constexpr int32_t chunks_of(uint64_t word) {
  return int32_t(word >> kFieldBits & kFieldMask);
}
constexpr int32_t next_of(uint64_t word) {
  return int32_t(word & kFieldMask);
}

// How a worker waits, for another's last chunk and for the next step alike: it spins, then offers its core to
// others, then sleeps. A futex wake-up costs 5-50 us here, and the gaps inside and between the steps of a
// busy server are mostly below 100 us.
constexpr auto kSpinTime = std::chrono::microseconds(10);
constexpr auto kAwakeTime = std::chrono::microseconds(100);
constexpr int kPausesPerClock = 16;  // reading the clock costs several pauses

}  // namespace

struct CpuStream::Worker {
  struct Context : OpContext {
    CpuStream* stream = nullptr;
  };
  struct FreeDeleter {
    void operator()(std::byte* p) const { std::free(p); }
  };

  Worker(CpuStream* stream, int index)
      : scratch(static_cast<std::byte*>(std::aligned_alloc(64, kOpScratchBytes))) {
    CHECK(scratch != nullptr, "no memory for {} bytes of scratch", kOpScratchBytes);
    std::memset(scratch.get(), 0,
                kOpScratchBytes);  // by the thread that uses it: the memory of its NUMA node
    context.worker = index;
    context.scratch = {scratch.get(), kOpScratchBytes};
    context.stream = stream;
    context.fail_fn = [](OpContext& c, Status s) { static_cast<Context&>(c).stream->fail(std::move(s)); };
    context.end_step_fn = [](OpContext& c) { static_cast<Context&>(c).stream->end_step(); };
  }

  std::unique_ptr<std::byte, FreeDeleter> scratch;
  Context context;
};

CpuStream::CpuStream(int threads) : workers_(threads) {
  CHECK_GE(threads, 1);
  team_.reserve(size_t(threads));
  for (int i = 0; i < threads; ++i) team_.emplace_back(fmt::format("device-{}", i), [this, i] { work(i); });
}

CpuStream::~CpuStream() {
  synchronize();
  stop_.store(true);
  parking_.notify(std::numeric_limits<int>::max());
  team_.clear();
}

std::shared_ptr<Event> CpuStream::submit(std::unique_ptr<OpList> ops) {
  CHECK_LE(ops->ops().size(), size_t{kMaxStepOps});
  auto event = std::make_shared<HostEvent>();
  std::lock_guard lock(mutex_);
  if (free_steps_.empty()) {
    steps_.push_back(std::make_unique<Step>());
    free_steps_.push_back(steps_.back().get());
  }
  Step* const step = free_steps_.back();
  free_steps_.pop_back();
  *step = {std::move(ops), event, steady_seconds(), submitted_++, nullptr};
  if (running_) {
    (queue_head_ ? queue_tail_->next : queue_head_) = step;
    queue_tail_ = step;
    return event;
  }
  running_ = true;
  current_ = step;
  ops_ = step->ops->ops();
  publish(kBeforeFirstOp, 1, 0, 1);
  return event;
}

std::unique_ptr<OpList> CpuStream::new_ops() {
  std::lock_guard lock(mutex_);
  if (free_lists_.empty()) return std::make_unique<OpList>();
  auto list = std::move(free_lists_.back());
  free_lists_.pop_back();
  return list;
}

void CpuStream::synchronize() {
  std::unique_lock lock(mutex_);
  step_done_.wait(lock,
                  [&, target = submitted_] { return completed_.load(std::memory_order_relaxed) >= target; });
}

// --- the team ---

void CpuStream::work(int index) {
  Worker worker(this, index);
  Claim claim;
  while (wait_for_claim(claim)) {
    while (work_on(claim, worker)) {
    }
  }
}

bool CpuStream::claimable() const {
  const uint64_t word = claim_.load();
  return next_of(word) < chunks_of(word);
}

// How many of `chunks` a worker takes when `next` is the first unclaimed one. Each takes 7/8 of its part at
// once and the rest in small shares, which even out workers of different speed: a new share begins with data
// that nobody has prefetched.
int32_t CpuStream::share_of(int32_t chunks, int32_t next) const {
  const int32_t first_share = int32_t(int64_t(chunks) * 7 / (8 * int64_t(workers_)));
  if (next < first_share * workers_) return std::max(1, first_share);
  return std::max(1, (chunks - next) / (2 * workers_));
}

// Where the worker's next share probably begins: after the first shares of all, or when each of the others
// has taken one as large as this.
int32_t CpuStream::likely_next(const Claim& claim) const {
  const int32_t share = claim.end - claim.begin;
  const int32_t rest = share_of(claim.chunks, 0) * workers_;
  return std::min(claim.chunks, claim.end <= rest ? rest : claim.end + share * (workers_ - 1));
}

// By the time of the addition the word may stand for another op; then the share is not the best one, and it
// still ends where that op's chunks do.
bool CpuStream::try_claim(Claim& claim) {
  const uint64_t seen = claim_.load();
  if (next_of(seen) >= chunks_of(seen)) return false;
  const int32_t share = share_of(chunks_of(seen), next_of(seen));
  const uint64_t word = claim_.fetch_add(uint64_t(share));
  claim = {op_of(word), chunks_of(word), next_of(word), std::min(next_of(word) + share, chunks_of(word))};
  return claim.begin < claim.chunks;
}

// False: the stream is being destroyed.
bool CpuStream::wait_for_claim(Claim& claim) {
  for (Clock::time_point begin = Clock::now();;) {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (try_claim(claim)) return true;
      pause_core();
    }
    if (stop_.load(std::memory_order_relaxed)) return false;
    const auto waited = Clock::now() - begin;
    if (waited < kSpinTime) continue;
    if (waited < kAwakeTime) {
      std::this_thread::yield();
      continue;
    }
    parking_.park([&] { return claimable() || stop_.load(); });
    begin = Clock::now();
  }
}

// Runs the chunks, and more of the same op while there are any. True: this worker reported the last one and
// now has a claim on the next op.
bool CpuStream::work_on(Claim& claim, Worker& worker) {
  const int32_t op = claim.op, chunks = claim.chunks;
  int32_t mine = 0;
  if (op == kBeforeFirstOp) {
    mine = 1;
    begin_step();
  } else {
    do {
      run_chunks(claim, worker);
      mine += claim.end - claim.begin;
      // Our chunks are not reported yet, so the op cannot have changed.
    } while (claim.end < chunks && try_claim(claim));
  }
  if (done_.fetch_add(mine, std::memory_order_acq_rel) + mine != chunks) return false;
  return lead_on(op == kBeforeFirstOp ? 0 : op + 1, claim);
}

void CpuStream::run_chunks(const Claim& claim, Worker& worker) {
  const Op& op = ops_[size_t(claim.op)];
  worker.context.begin = claim.begin;
  worker.context.end = claim.end;
  worker.context.next = likely_next(claim);
  try {
    for (int32_t chunk = claim.begin; chunk < claim.end; ++chunk) op.run(op.params, chunk, worker.context);
  } catch (const std::exception& e) {
    fail(Status::internal("op {} threw: {}", op.name, e.what()));
  } catch (...) {
    fail(Status::internal("op {} threw", op.name));
  }
}

// Publishes the first op from `op` on that has work, with its first chunks taken by the caller. False: the
// step is over; the caller looks for work like everybody else.
bool CpuStream::lead_on(int32_t op, Claim& claim) {
  for (;; ++op) {
    if (op >= int32_t(ops_.size()) || skip_.load(std::memory_order_relaxed)) {
      finish_step();
      return false;
    }
    const int32_t chunks = count_chunks(ops_[size_t(op)]);
    if (chunks == 0) continue;
    if (step_profile_) begin_sample(ops_[size_t(op)]);
    claim = {op, chunks, 0, share_of(chunks, 0)};
    publish(op, chunks, claim.end, std::min(chunks - claim.end, workers_ - 1));
    return true;
  }
}

void CpuStream::begin_step() {
  started_ = steady_seconds();
  step_profile_ = profile_.load(std::memory_order_acquire);
  samples_.clear();
}

void CpuStream::begin_sample(const Op& op) {
  const double now = samples_.empty() ? started_ : steady_seconds();
  end_sample(now);
  op_began_ = now;
  samples_.push_back({op.label, 0, op.work ? op.work(op.params) : OpWork{}});
}

void CpuStream::end_sample(double now) {
  if (!samples_.empty()) samples_.back().seconds = now - op_began_;
}

int32_t CpuStream::count_chunks(const Op& op) {
  int32_t chunks = 0;
  try {
    chunks = op.chunks(op.params);
  } catch (const std::exception& e) {
    fail(Status::internal("op {} threw: {}", op.name, e.what()));
  } catch (...) {
    fail(Status::internal("op {} threw", op.name));
  }
  CHECK(chunks >= 0 && chunks <= kMaxOpChunks, "op {} wants {} chunks", op.name, chunks);
  return chunks;
}

void CpuStream::publish(int32_t op, int32_t chunks, int32_t next, int wake) {
  done_.store(0, std::memory_order_relaxed);
  claim_.store(pack(op, chunks, next));
  if (wake > 0) parking_.notify(wake);
}

// The step's list is back in the pool before its event is set. The next step begins before that: to wake who
// waits for the event costs a system call, and the kernel may run him on this core at once (measured: 50 us
// between two steps of SmolLM2, and 15 when the rest of the team goes on meanwhile).
void CpuStream::finish_step() {
  std::shared_ptr<HostEvent> event = std::move(current_->event);
  const StepTimes times{current_->submitted, started_, steady_seconds()};
  const uint64_t number = current_->number;
  if (step_profile_ && !skip_.load(std::memory_order_relaxed)) {
    end_sample(times.ended);
    step_profile_->add(current_->ops->tag, samples_, times);
  }
  std::optional<Status> status;
  bool more = false;
  {
    std::lock_guard lock(mutex_);
    current_->ops->clear();
    free_lists_.push_back(std::move(current_->ops));
    status = std::exchange(error_, std::nullopt);
    skip_.store(false, std::memory_order_relaxed);
    free_steps_.push_back(current_);
    current_ = queue_head_;
    more = running_ = current_ != nullptr;
    if (more) {
      queue_head_ = current_->next;
      ops_ = current_->ops->ops();
    }
  }
  if (more) publish(kBeforeFirstOp, 1, 0, 0);
  // Events are set in the order of their steps, also if the next one is over already.
  while (completed_.load(std::memory_order_acquire) != number) std::this_thread::yield();
  event->set(std::move(status).value_or(Status()), times);
  std::lock_guard lock(mutex_);
  completed_.store(number + 1, std::memory_order_release);
  step_done_.notify_all();
}

void CpuStream::fail(Status status) {
  CHECK(!status.is_ok(), "an op fails with an error");
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(status);
  skip_.store(true, std::memory_order_relaxed);
}

}  // namespace gapless
