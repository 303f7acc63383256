// What every thread and stream was doing, always recorded: rings of spans, one for each thread or stream,
// that keep the last few seconds. Writing one takes no lock, allocates nothing and never waits.
// docs/tracing.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace gapless {

inline constexpr int kTraceArgs = 3;
inline constexpr int64_t kNoTraceArg = std::numeric_limits<int64_t>::min();

// What a span is called and what its numbers mean. Rings keep pointers to it, so it must live for ever: the
// constants of base/trace_names.h.
struct TraceName {
  const char* text;
  const char* args[kTraceArgs] = {};
};

// A span as it is read back. Times are steady_seconds().
struct TraceRecord {
  const TraceName* name = nullptr;
  double begin = 0, end = 0;
  int64_t args[kTraceArgs] = {kNoTraceArg, kNoTraceArg, kNoTraceArg};
};

// The last spans of one thread or stream. One thread at a time writes; any thread reads at the same time.
//
// Each entry has a sequence number, odd while it is being written. All fields are atomic, stored with release
// and read with acquire: a reader that got any part of a newer span also sees that the number has changed,
// and skips the entry. Fences would do with relaxed fields, but ThreadSanitizer does not understand them, and
// on x86 both are plain moves.
class TraceRing {
 public:
  // spans: rounded up to a power of two.
  TraceRing(std::string name, size_t spans);

  // Writer. A span of a device comes with the device's times; those of one ring should not overlap unless one
  // contains the other. An argument that is kNoTraceArg or has no name is not shown. A nanosecond or two.
  void add(const TraceName& name, double begin, double end, int64_t a = kNoTraceArg, int64_t b = kNoTraceArg,
           int64_t c = kNoTraceArg) {
    const uint64_t index = written_.load(std::memory_order_relaxed);
    Entry& entry = entries_[index & mask_];
    entry.sequence.store(2 * index + 1, std::memory_order_relaxed);
    entry.name.store(&name, std::memory_order_release);
    entry.begin.store(begin, std::memory_order_release);
    entry.end.store(end, std::memory_order_release);
    entry.args[0].store(a, std::memory_order_release);
    entry.args[1].store(b, std::memory_order_release);
    entry.args[2].store(c, std::memory_order_release);
    entry.sequence.store(2 * index + 2, std::memory_order_release);
    written_.store(index + 1, std::memory_order_release);
  }
  void add(TraceName&&, double, double, int64_t = 0, int64_t = 0, int64_t = 0) = delete;  // would dangle

  const std::string& name() const { return name_; }
  // Any thread. Spans that ended at or after `since`, in the order they were written; those overwritten
  // meanwhile are left out.
  std::vector<TraceRecord> read(double since = -std::numeric_limits<double>::infinity()) const;
  // Any thread, for a reader that comes again and again: appends what was written since its last call, and
  // moves its cursor on: the number of spans before the next one (0: all that are kept, written(): none of
  // them). Returns how many of those between were overwritten before they could be read. Costs what is new.
  uint64_t read_new(uint64_t& cursor, std::vector<TraceRecord>& records) const;
  // Spans that were ever written.
  uint64_t written() const { return written_.load(std::memory_order_acquire); }
  // Spans that were written and are no longer kept.
  uint64_t overwritten() const;

 private:
  struct alignas(64) Entry {
    std::atomic<uint64_t> sequence{0};  // 2 x index + 2 when complete
    std::atomic<const TraceName*> name{nullptr};
    std::atomic<double> begin{0}, end{0};
    std::atomic<int64_t> args[kTraceArgs]{};
  };
  static bool read_entry(const Entry& entry, uint64_t index, TraceRecord& record);

  const std::string name_;
  const uint64_t mask_;
  const std::unique_ptr<Entry[]> entries_;
  alignas(64) std::atomic<uint64_t> written_{0};
};

// The time from here to the end of the scope, or to end(). 52 ns, nearly all of it two
// clock reads.
class TraceSpan {
 public:
  TraceSpan(TraceRing& ring, const TraceName& name) : ring_(&ring), name_(name), begin_(steady_seconds()) {}
  TraceSpan(TraceRing&, TraceName&&) = delete;  // would dangle
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (ring_) end();
  }

  void set_args(int64_t a, int64_t b = kNoTraceArg, int64_t c = kNoTraceArg) {
    args_[0] = a;
    args_[1] = b;
    args_[2] = c;
  }
  double begin() const { return begin_; }
  // Ends it now, once; how long it was, in seconds: for a histogram.
  double end() {
    const double now = steady_seconds();
    ring_->add(name_, begin_, now, args_[0], args_[1], args_[2]);
    ring_ = nullptr;
    return now - begin_;
  }
  // Nothing happened that is worth a span.
  void drop() { ring_ = nullptr; }

 private:
  TraceRing* ring_;
  const TraceName& name_;
  const double begin_;
  int64_t args_[kTraceArgs] = {kNoTraceArg, kNoTraceArg, kNoTraceArg};
};

// The rings of one engine.
class Tracer {
 public:
  // 64 bytes a span, so 2 MiB a ring: about four seconds of a scheduler that makes a step each millisecond.
  // Tests that make many engines give less.
  static constexpr size_t kDefaultSpans = size_t{1} << 15;
  explicit Tracer(size_t spans_per_ring = kDefaultSpans);

  // The ring of that name, made when first asked for; valid as long as the tracer. Any thread; takes a lock,
  // so keep the reference.
  TraceRing& ring(std::string_view name);
  // When it was made, in steady_seconds(): traces count from here.
  double start() const { return start_; }
  // Chrome's trace event format, as Perfetto and chrome://tracing open it: spans that ended at or after
  // `since` (steady_seconds()), times counted from the tracer's start. Any thread; tens of milliseconds for
  // full rings.
  std::string chrome_json(double since = -std::numeric_limits<double>::infinity()) const;

 private:
  const size_t spans_per_ring_;
  const double start_ = steady_seconds();
  mutable std::mutex mutex_;
  std::deque<TraceRing> rings_;
};

}  // namespace gapless
