#include "server/live_json.h"

#include "base/trace_names.h"
#include "server/json_writer.h"

namespace gapless {

namespace {

constexpr size_t kShownGaps = 100;
constexpr size_t kShownRid = 64;  // bytes of a name
constexpr int kMicroseconds = 6, kMilliseconds = 3, kShares = 4;

void write_request(JsonWriter& w, const RequestRow& row) {
  w.begin_object().key("id").integer(int64_t(row.id)).key("rid").string(printable(row.rid, kShownRid));
  w.key("choice").integer(row.choice).key("phase").string(request_phase_name(row.phase));
  w.key("prompt").integer(row.prompt).key("cached").integer(row.cached).key("computed").integer(row.computed);
  w.key("output").integer(row.output).key("max").integer(row.max_output);
  w.key("age_s").fixed(row.age_seconds, kMilliseconds).key("queue_s").fixed(row.queue_seconds, kMilliseconds);
  w.end_object();
}

void write_pages(JsonWriter& w, const KvPages& pages) {
  w.key("kv").begin_object().key("page_size").integer(pages.page_size).key("free").integer(pages.free);
  w.key("tree").integer(pages.tree).key("evictable").integer(pages.evictable);
  w.key("in_use").integer(pages.in_use).key("leased").integer(pages.leased).end_object();
}

void write_cache(JsonWriter& w, const SchedulerSnapshot& s) {
  w.key("cache").begin_object().key("hit_tokens").integer(s.stats.cached_tokens);
  w.key("prompt_tokens").integer(s.stats.prompt_tokens).key("nodes").integer(s.cache_nodes);
  w.key("prefixes").begin_array();
  for (const SharedPrefix& prefix : s.prefixes) {
    w.begin_object().key("tokens").integer(prefix.tokens).key("branches").integer(prefix.branches);
    w.key("users").integer(prefix.users).end_object();
  }
  w.end_array().end_object();
}

void write_counters(JsonWriter& w, const SchedulerStats& stats) {
  w.key("tokens").begin_object().key("prompt").integer(stats.prompt_tokens);
  w.key("generated").integer(stats.generation_tokens).key("cached").integer(stats.cached_tokens);
  w.key("prefill").integer(stats.prefill_tokens).end_object();
  w.key("counts").begin_object().key("retractions").integer(stats.retractions);
  w.key("recalls").integer(stats.recalls).key("memory_stalls").integer(stats.memory_stalls).end_object();
}

}  // namespace

std::string hello_fields(const EngineApi& engine) {
  const ModelFacts& model = engine.model();
  std::string out;
  JsonWriter w(out);
  w.key("version").string(GAPLESS_VERSION).key("model").string(model.id).key("device").string(model.device);
  w.key("loop").string(event_loop_name(engine.event_loop())).key("page_size").integer(model.page_size);
  w.key("kv_total_tokens").integer(engine.load().kv_tokens_total);
  w.key("max_running")
      .integer(model.max_running_requests)
      .key("context_length")
      .integer(model.context_length);
  w.key("rings").begin_array();
  for (const char* ring : trace::kRings) w.string(ring);
  w.end_array();
  return out;
}

void write_steps(std::string& out, const StepsReport& steps, double start) {
  JsonWriter w(out);
  w.key("steps").begin_object().key("n").integer(steps.n).key("rows").integer(steps.rows);
  w.key("tokens").integer(steps.tokens).key("busy").fixed(steps.busy, kShares);
  const GapFigures figures = figures_of(steps.gaps);
  w.key("gap_us").begin_object().key("n").integer(int64_t(steps.gaps.size()));
  w.key("mean").fixed(figures.mean * 1e6, 1).key("p50").fixed(figures.p50 * 1e6, 1);
  w.key("p99").fixed(figures.p99 * 1e6, 1).key("max").fixed(figures.max * 1e6, 1).end_object();
  w.key("gaps").begin_array();
  for (const StepsReport::Gap& gap : longest_of_stretches(steps.gaps, kShownGaps)) {
    w.begin_array().fixed(gap.at - start, kMicroseconds).fixed(gap.length * 1e6, 1).end_array();
  }
  w.end_array().end_object();
}

std::string state_fields(const SchedulerSnapshot& s, double start, size_t max_bytes) {
  std::string out;
  JsonWriter w(out);
  w.key("now").fixed(s.at - start, kMicroseconds).key("running").integer(s.stats.running);
  w.key("queued").integer(s.stats.queued).key("retracted").integer(s.retracted);
  write_counters(w, s.stats);
  write_pages(w, s.pages);
  write_cache(w, s);
  w.key("requests").begin_array();
  size_t shown = 0;
  for (; shown < s.requests.size() && out.size() < max_bytes; shown++) write_request(w, s.requests[shown]);
  w.end_array();
  w.key("requests_left_out").integer(s.requests_left_out + int64_t(s.requests.size() - shown));
  return out;
}

std::string trace_name_json(const TraceName& name) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("text").string(name.text).key("args").begin_array();
  for (const char* arg : name.args)
    if (arg) w.string(arg);
  w.end_array().end_object();
  return out;
}

}  // namespace gapless
