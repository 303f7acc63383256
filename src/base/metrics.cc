#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace gapless {

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), buckets_(bounds_.size() + 1) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::observe(double v) {
  size_t i = std::lower_bound(bounds_.begin(), bounds_.end(), v) - bounds_.begin();
  buckets_[i].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(v, std::memory_order_relaxed);
}

Counter& MetricsRegistry::counter(const std::string& name, const std::string& help,
                                  const std::string& labels) {
  std::lock_guard lock(mutex_);
  Counter& c = counters_.emplace_back();
  series_.push_back({.kind = Kind::kCounter, .name = name, .help = help, .labels = labels, .counter = &c});
  return c;
}

Gauge& MetricsRegistry::gauge(const std::string& name, const std::string& help, const std::string& labels) {
  std::lock_guard lock(mutex_);
  Gauge& g = gauges_.emplace_back();
  series_.push_back({.kind = Kind::kGauge, .name = name, .help = help, .labels = labels, .gauge = &g});
  return g;
}

Histogram& MetricsRegistry::histogram(const std::string& name, const std::string& help,
                                      std::vector<double> bounds, const std::string& labels) {
  std::lock_guard lock(mutex_);
  Histogram& h = histograms_.emplace_back(std::move(bounds));
  series_.push_back(
      {.kind = Kind::kHistogram, .name = name, .help = help, .labels = labels, .histogram = &h});
  return h;
}

void MetricsRegistry::counter_read_from(const std::string& name, const std::string& help,
                                        std::function<double()> read) {
  std::lock_guard lock(mutex_);
  series_.push_back(
      {.kind = Kind::kCounter, .name = name, .help = help, .labels = "", .read = std::move(read)});
}

static void write_histogram(std::string& out, const std::string& name, const std::string& labels,
                            const Histogram& h) {
  const std::string comma = labels.empty() ? "" : labels + ",";
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= h.bounds().size(); i++) {
    cumulative += h.bucket(i);
    const std::string le = i < h.bounds().size() ? fmt::format("{}", h.bounds()[i]) : "+Inf";
    fmt::format_to(std::back_inserter(out), "{}_bucket{{{}le=\"{}\"}} {}\n", name, comma, le, cumulative);
  }
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  // The count line repeats the +Inf bucket, so that a scrape in the middle of an update is still consistent.
  fmt::format_to(std::back_inserter(out), "{}_sum{} {}\n{}_count{} {}\n", name, braces, h.sum(), name, braces,
                 cumulative);
}

std::string MetricsRegistry::prometheus_text() const {
  std::lock_guard lock(mutex_);
  std::vector<const Series*> sorted;
  for (const Series& s : series_) sorted.push_back(&s);
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
  std::string out;
  const std::string* last = nullptr;
  for (const Series* s : sorted) {
    if (!last || *last != s->name) {
      const char* type = s->kind == Kind::kCounter ? "counter"
                         : s->kind == Kind::kGauge ? "gauge"
                                                   : "histogram";
      fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", s->name, s->help, s->name,
                     type);
    }
    last = &s->name;
    if (s->kind == Kind::kHistogram) {
      write_histogram(out, s->name, s->labels, *s->histogram);
      continue;
    }
    const double v = s->read ? s->read() : s->counter ? s->counter->value() : s->gauge->value();
    fmt::format_to(std::back_inserter(out), "{}{} {}\n", s->name,
                   s->labels.empty() ? "" : "{" + s->labels + "}", v);
  }
  return out;
}

}  // namespace gapless
