// `gapless bench serve`: loads a running OpenAI-compatible server and prints one JSON line of figures.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli.h"
#include "apps/load_client.h"
#include "apps/workload.h"

namespace gapless {

namespace {

using Json = nlohmann::ordered_json;

std::vector<LoadRequest> make_requests(const BenchServeArgs& args) {
  const std::vector<std::string> prompts =
      make_prompts({args.requests, args.prompt_tokens, args.shared_prefix, args.seed});
  std::vector<double> arrivals(prompts.size(), 0.0);
  if (args.request_rate > 0) arrivals = poisson_arrivals(args.requests, args.request_rate, args.seed);
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Json body{
        {"model", args.model},  {"stream", true},      {"stream_options", {{"include_usage", true}}},
        {"temperature", 0},     {"ignore_eos", true},  {"max_tokens", args.max_tokens},
        {"cache_prompt", true}, {"prompt", prompts[i]}};
    requests.push_back({body.dump(), arrivals[i]});
  }
  return requests;
}

// To a whole number of 1 / parts.
double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

// Milliseconds -> mean, p50, p99; null when there is nothing to say.
Json summary(std::vector<double> values) {
  if (values.empty()) return {{"mean", nullptr}, {"p50", nullptr}, {"p99", nullptr}};
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (double v : values) sum += v;
  const auto quantile = [&](double p) {
    return rounded(values[std::min(values.size() - 1, size_t(p * double(values.size())))], 100);
  };
  return {
      {"mean", rounded(sum / double(values.size()), 100)}, {"p50", quantile(0.5)}, {"p99", quantile(0.99)}};
}

struct Totals {
  int failed = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0;
  double seconds = 0;
  std::vector<double> ttft, itl;
  std::string first_error;
};

Totals add_up(const BenchServeArgs& args, const std::vector<LoadRecord>& records) {
  Totals t;
  for (const LoadRecord& r : records) {
    if (!r.error.empty()) {
      ++t.failed;
      if (t.first_error.empty()) t.first_error = r.error;
    }
    if (r.stamps.empty()) continue;
    t.prompt_tokens += r.prompt_tokens >= 0 ? r.prompt_tokens : args.prompt_tokens;
    t.completion_tokens += r.completion_tokens >= 0 ? r.completion_tokens : int64_t(r.stamps.size());
    t.seconds = std::max(t.seconds, r.stamps.back());
    t.ttft.push_back(1e3 * (r.stamps.front() - r.start));
    for (size_t i = 1; i < r.stamps.size(); ++i) t.itl.push_back(1e3 * (r.stamps[i] - r.stamps[i - 1]));
  }
  return t;
}

Json report(const BenchServeArgs& args, int concurrency, const Totals& t) {
  const double seconds = std::max(t.seconds, 1e-9);
  Json json{{"concurrency", concurrency},
            {"requests", args.requests},
            {"failed", t.failed},
            {"seconds", rounded(t.seconds, 100)},
            {"output_tok_s", rounded(double(t.completion_tokens) / seconds, 10)},
            {"total_tok_s", rounded(double(t.completion_tokens + t.prompt_tokens) / seconds, 10)},
            {"prompt_tokens", t.prompt_tokens},
            {"completion_tokens", t.completion_tokens},
            {"ttft_ms", summary(t.ttft)},
            {"itl_ms", summary(t.itl)}};
  if (args.request_rate > 0) json["request_rate"] = args.request_rate;
  return json;
}

}  // namespace

int run_bench_serve(const BenchServeArgs& args) {
  if (args.shared_prefix > args.prompt_tokens) {
    return fail(kExitUsage, Status::invalid("--shared-prefix {} is more than --prompt-tokens {}",
                                            args.shared_prefix, args.prompt_tokens));
  }
  Result<LoadTarget> target = parse_url(args.url);
  if (!target) return fail(kExitUsage, target.status());
  target->api_key = args.api_key;
  const int concurrency = args.concurrency > 0    ? args.concurrency
                          : args.request_rate > 0 ? 0
                                                  : kDefaultConcurrency;
  const std::vector<LoadRequest> requests = make_requests(args);
  Result<std::vector<LoadRecord>> records = run_load(*target, requests, {concurrency, double(args.timeout)});
  if (!records) return fail(kExitRuntime, records.status());
  const Totals totals = add_up(args, *records);
  std::puts(report(args, concurrency, totals).dump().c_str());
  if (totals.failed == 0) return kExitOk;
  return fail(kExitRuntime, Status::internal("{} of {} requests failed, the first with: {}", totals.failed,
                                             args.requests, totals.first_error));
}

}  // namespace gapless
