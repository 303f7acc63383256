// Counters, gauges and histograms, written as Prometheus text. Lock-free to update from any thread; a
// registry belongs to one engine (there is no global one), and metrics are defined where they are counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace gapless {

class Counter {
 public:
  void add(double n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double v) { value_.store(v, std::memory_order_relaxed); }
  void add(double n) { value_.fetch_add(n, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // ascending upper bounds; +Inf is added
  void observe(double v);
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  const std::vector<double>& bounds() const { return bounds_; }
  uint64_t bucket(size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }  // not cumulative

 private:
  std::vector<double> bounds_;
  std::deque<std::atomic<uint64_t>> buckets_;
  std::atomic<uint64_t> count_{0};
  std::atomic<double> sum_{0};
};

// References stay valid as long as the registry. labels: Prometheus label text without braces, e.g.
// `reason="stop"`.
class MetricsRegistry {
 public:
  Counter& counter(const std::string& name, const std::string& help, const std::string& labels = "");
  Gauge& gauge(const std::string& name, const std::string& help, const std::string& labels = "");
  Histogram& histogram(const std::string& name, const std::string& help, std::vector<double> bounds,
                       const std::string& labels = "");
  // A counter that is kept elsewhere: `read` is called for each text, on the thread that asks for it, and
  // must not use the registry.
  void counter_read_from(const std::string& name, const std::string& help, std::function<double()> read);
  std::string prometheus_text() const;

 private:
  enum class Kind { kCounter, kGauge, kHistogram };
  struct Series {
    Kind kind = Kind::kCounter;
    std::string name, help, labels;
    Counter* counter = nullptr;
    Gauge* gauge = nullptr;
    Histogram* histogram = nullptr;
    std::function<double()> read = {};  // of a counter that is kept elsewhere
  };
  mutable std::mutex mutex_;
  std::vector<Series> series_;
  std::deque<Counter> counters_;
  std::deque<Gauge> gauges_;
  std::deque<Histogram> histograms_;
};

}  // namespace gapless
