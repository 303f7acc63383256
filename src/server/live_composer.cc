#include "server/live_composer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/trace_names.h"
#include "server/json_writer.h"
#include "server/live_json.h"

namespace gapless {

namespace {

constexpr size_t kStateBytes = 60'000;  // at most
constexpr size_t kSpanBytes = 40;  // more than a span takes on average: "[4,12,-98765,43210,123456,64,64],"
constexpr size_t kFrameBytes = 4'000;  // more than a frame takes without its spans
constexpr double kMicro = 1e6;

size_t ring_index(const char* name) {
  return size_t(std::ranges::find(trace::kRings, name) - std::begin(trace::kRings));
}

void append(std::string& out, int64_t value) {
  const fmt::format_int text(value);
  out.append(text.data(), text.size());
}

void write_args(std::string& out, const TraceRecord& record) {
  int n = kTraceArgs;
  while (n > 0 && (record.args[n - 1] == kNoTraceArg || !record.name->args[n - 1])) n--;
  for (int i = 0; i < n; i++) {
    out += ',';
    if (record.args[i] == kNoTraceArg) {
      out += "null";
    } else {
      append(out, record.args[i]);
    }
  }
}

}  // namespace

LiveComposer::LiveComposer(EngineApi& engine)
    : engine_(engine),
      start_(engine.tracer().start()),
      last_frame_(steady_seconds()),
      names_(std::make_shared<std::vector<std::string>>()) {
  for (const char* name : trace::kRings) {
    const TraceRing& ring = engine.tracer().ring(name);
    rings_.push_back({&ring, ring.written(), {}});
  }
}

std::shared_ptr<const LiveEvent> LiveComposer::hello() {
  return std::make_shared<LiveEvent>(LiveEvent{LiveEvent::Kind::kHello, hello_fields(engine_), names_});
}

std::shared_ptr<const LiveEvent> LiveComposer::state(const SchedulerSnapshot& snapshot) {
  auto event = std::make_shared<LiveEvent>(
      LiveEvent{LiveEvent::Kind::kState, state_fields(snapshot, start_, kStateBytes), {}});
  state_bytes_ = event->fields.size();
  return event;
}

// The device's ring comes before the scheduler's, see StepCounter.
bool LiveComposer::read_rings() {
  uint64_t lost = 0;
  for (size_t i = rings_.size(); i-- > 0;) {
    rings_[i].fresh.clear();
    lost += rings_[i].ring->read_new(rings_[i].cursor, rings_[i].fresh);
  }
  return lost == 0;
}

size_t LiveComposer::spans_per_frame() const {
  const size_t states = kLiveStatesPerSecond * state_bytes_;
  return ((kLiveBytesPerSecond - states) / kLiveFramesPerSecond - kFrameBytes) / kSpanBytes;
}

std::shared_ptr<const LiveEvent> LiveComposer::frame() {
  if (!read_rings()) steps_.restart();
  const double now = steady_seconds();
  double from = std::exchange(last_frame_, now);
  const auto& device = rings_[ring_index(trace::kDevice)].fresh;
  const auto& scheduler = rings_[ring_index(trace::kScheduler)].fresh;
  const StepsReport steps = steps_.count(device, scheduler, now - from);
  size_t left_out = 0;
  const std::vector<Span> spans = newest_spans(from, left_out);

  auto event = std::make_shared<LiveEvent>();
  event->kind = LiveEvent::Kind::kFrame;
  std::string& out = event->fields;
  JsonWriter w(out);
  w.key("now").fixed(now - start_, 6).key("from").fixed(from - start_, 6).key("to").fixed(now - start_, 6);
  w.key("left_out").integer(int64_t(left_out));
  w.key("loop").string(event_loop_name(engine_.event_loop())).key("spans").begin_array();
  write_spans(out, spans, from);
  w.end_array();
  out += ',';
  write_steps(out, steps, start_);
  event->names = names_;
  return event;
}

// As many as a frame may have, each ring's in order. Where there are more, `from` becomes the end of the
// newest that is left out.
std::vector<LiveComposer::Span> LiveComposer::newest_spans(double& from, size_t& left_out) const {
  std::vector<Span> spans;
  for (size_t ring = 0; ring < rings_.size(); ring++)
    for (const TraceRecord& record : rings_[ring].fresh) spans.push_back({ring, &record});
  const size_t most = spans_per_frame();
  if (spans.size() <= most) return spans;
  left_out = spans.size() - most;
  std::ranges::nth_element(spans, spans.begin() + ptrdiff_t(most), std::ranges::greater(),
                           [](const Span& span) { return span.record->end; });
  from = std::max(from, spans[most].record->end);
  spans.resize(most);
  std::ranges::sort(spans, {}, &Span::record);
  return spans;
}

void LiveComposer::write_spans(std::string& out, const std::vector<Span>& spans, double from) {
  for (size_t i = 0; i < spans.size(); i++) {
    const TraceRecord& record = *spans[i].record;
    out += i > 0 ? ",[" : "[";
    append(out, int64_t(spans[i].ring));
    out += ',';
    append(out, int64_t(index_of(*record.name)));
    out += ',';
    append(out, std::llround((record.begin - from) * kMicro));
    out += ',';
    append(out, std::llround((record.end - record.begin) * kMicro));
    write_args(out, record);
    out += ']';
  }
}

size_t LiveComposer::index_of(const TraceName& name) {
  const auto known = std::ranges::find(known_, &name);
  const auto index = size_t(known - known_.begin());
  if (known != known_.end()) return index;
  known_.push_back(&name);
  auto names = std::make_shared<std::vector<std::string>>(*names_);
  names->push_back(trace_name_json(name));
  names_ = std::move(names);
  return index;
}

}  // namespace gapless
