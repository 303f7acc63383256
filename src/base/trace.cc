#include "base/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/trace_names.h"

namespace gapless {

namespace {

// A name between quotes, as JSON wants it.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Where a viewer shows the ring: the vocabulary's order, then the order in which they were made.
size_t rank_of(const std::string& name, size_t made) {
  const auto known = std::find(std::begin(trace::kRings), std::end(trace::kRings), name);
  return known == std::end(trace::kRings) ? std::size(trace::kRings) + made
                                          : size_t(known - std::begin(trace::kRings));
}

void write_thread(std::string& out, const TraceRing& ring, size_t tid) {
  fmt::format_to(
      std::back_inserter(out),
      R"({{"ph":"M","name":"thread_name","pid":1,"tid":{0},"args":{{"name":{1},"overwritten":{2}}}}},)"
      "\n"
      R"({{"ph":"M","name":"thread_sort_index","pid":1,"tid":{0},"args":{{"sort_index":{0}}}}})",
      tid, quoted(ring.name()), ring.overwritten());
}

void write_span(std::string& out, const TraceRecord& span, size_t tid, double start) {
  fmt::format_to(std::back_inserter(out), R"({{"ph":"X","name":{},"pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f})",
                 quoted(span.name->text), tid, (span.begin - start) * 1e6, (span.end - span.begin) * 1e6);
  std::string args;
  for (int i = 0; i < kTraceArgs; i++) {
    if (!span.name->args[i] || span.args[i] == kNoTraceArg) continue;
    fmt::format_to(std::back_inserter(args), "{}{}:{}", args.empty() ? "" : ",", quoted(span.name->args[i]),
                   span.args[i]);
  }
  if (!args.empty()) out += R"(,"args":{)" + args + "}";
  out += "}";
}

}  // namespace

TraceRing::TraceRing(std::string name, size_t spans)
    : name_(std::move(name)),
      mask_(std::bit_ceil(std::max<size_t>(spans, 1)) - 1),
      entries_(new Entry[mask_ + 1]) {}

bool TraceRing::read_entry(const Entry& entry, uint64_t index, TraceRecord& record) {
  const uint64_t complete = 2 * index + 2;
  if (entry.sequence.load(std::memory_order_acquire) != complete) return false;
  record.name = entry.name.load(std::memory_order_acquire);
  record.begin = entry.begin.load(std::memory_order_acquire);
  record.end = entry.end.load(std::memory_order_acquire);
  for (int i = 0; i < kTraceArgs; i++) record.args[i] = entry.args[i].load(std::memory_order_acquire);
  return entry.sequence.load(std::memory_order_relaxed) == complete;
}

std::vector<TraceRecord> TraceRing::read(double since) const {
  uint64_t cursor = 0;
  std::vector<TraceRecord> records;
  read_new(cursor, records);
  std::erase_if(records, [&](const TraceRecord& record) { return record.end < since; });
  return records;
}

// What is lost while this reads is a span that was complete when it began, and another has taken its place.
uint64_t TraceRing::read_new(uint64_t& cursor, std::vector<TraceRecord>& records) const {
  const uint64_t end = written(), kept = end > mask_ ? end - mask_ - 1 : 0;
  uint64_t lost = std::max(cursor, kept) - cursor;
  for (uint64_t index = cursor + lost; index < end; index++) {
    TraceRecord record;
    if (read_entry(entries_[index & mask_], index, record)) {
      records.push_back(record);
    } else {
      lost++;
    }
  }
  cursor = end;
  return lost;
}

uint64_t TraceRing::overwritten() const {
  const uint64_t n = written();
  return n > mask_ + 1 ? n - mask_ - 1 : 0;
}

Tracer::Tracer(size_t spans_per_ring) : spans_per_ring_(spans_per_ring) {}

TraceRing& Tracer::ring(std::string_view name) {
  std::lock_guard lock(mutex_);
  for (TraceRing& ring : rings_)
    if (ring.name() == name) return ring;
  return rings_.emplace_back(std::string(name), spans_per_ring_);
}

std::string Tracer::chrome_json(double since) const {
  std::vector<std::pair<size_t, const TraceRing*>> rings;
  {
    std::lock_guard lock(mutex_);
    for (const TraceRing& ring : rings_) rings.emplace_back(rank_of(ring.name(), rings.size()), &ring);
  }
  std::sort(rings.begin(), rings.end());
  std::string out =
      "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
      R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"gapless"}})";
  for (size_t tid = 1; tid <= rings.size(); tid++) {
    const TraceRing& ring = *rings[tid - 1].second;
    out += ",\n";
    write_thread(out, ring, tid);
    for (const TraceRecord& span : ring.read(since)) {
      out += ",\n";
      write_span(out, span, tid, start_);
    }
  }
  return out + "\n]}\n";
}

}  // namespace gapless
