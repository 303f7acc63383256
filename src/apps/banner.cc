#include "apps/banner.h"

#include <fmt/format.h>

namespace gapless {

namespace {

std::string human(double value, const char* const (&units)[5]) {
  int unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  return fmt::format("{:.{}f}{}", value, unit == 0 ? 0 : 1, units[unit]);
}

// "2 '<|im_end|>', 0 '<|endoftext|>'"
std::string stop_ids(const Tokenizer& tokenizer) {
  std::string text;
  for (int32_t id : tokenizer.eos_ids()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", id, printable(tokenizer.token_bytes().of(id)));
  }
  return text.empty() ? "none: answers end by length or stop strings" : text;
}

std::string schedule_line(const SchedulerConfig& s, const LoopChoice& loop) {
  const std::string chunk =
      s.chunked_prefill_size < 0 ? "never cut" : fmt::format("{} tokens per step", s.chunked_prefill_size);
  return fmt::format(
      "loop {}; {} requests at a time, {} may wait; prompts {}; mixed steps {}; prefix cache {}",
      loop.reason.empty() ? event_loop_name(loop.loop)
                          : fmt::format("{} ({})", event_loop_name(loop.loop), loop.reason),
      s.max_running_requests, s.max_queued_requests, chunk, s.mixed_chunk ? "on" : "off",
      s.radix_cache ? "on" : "off");
}

// A simulation computes with one thread whatever was asked for, so the CPU's figures would mislead.
std::string compute_line(const LoadedModel& parts) {
  if (dynamic_cast<const SimDevice*>(parts.device.get()))
    return fmt::format("  device     {}: a simulation, answers are random words", parts.device->name());
  return fmt::format("  compute    {} threads ({}), {} kernels", parts.threads.threads, parts.threads.reason,
                     parts.table->name);
}

std::string late_text(const SimDevice::Stats& before, const SimDevice::Stats& now) {
  const int64_t steps = now.steps - before.steps, late = now.overruns - before.overruns;
  if (double(late) <= kMaxSimOverrun * double(steps)) return {};
  return fmt::format(", {:.1f} % of the simulated steps were late: this host is too busy for them",
                     100.0 * double(late) / double(steps));
}

}  // namespace

std::string human_bytes(double bytes) {
  return human(bytes, {" B", " kB", " MB", " GB", " TB"});
}
std::string human_count(double n) {
  return human(n, {"", " k", " M", " G", " T"});
}

std::vector<std::string> start_banner(const ServeArgs& args, const Engine& engine,
                                      const std::vector<std::string>& urls, bool has_key,
                                      double load_seconds) {
  const LoadedModel& parts = engine.parts();
  const ModelFacts& facts = parts.facts;
  const SchedulerConfig& s = parts.sizing.scheduler;
  std::string url;
  for (const std::string& u : urls) url += (url.empty() ? "" : "  ") + u;
  std::vector<std::string> lines{
      fmt::format("gapless {}", GAPLESS_VERSION),
      fmt::format("  model      {} ({}, {} parameters, {}, {}), loaded in {:.1f} s", facts.path,
                  facts.architecture, human_count(double(facts.n_params)), facts.quantisation,
                  human_bytes(double(facts.file_bytes)), load_seconds),
      compute_line(parts),
      fmt::format("  context    {} tokens for every request (--context-length)", s.context_length),
      fmt::format("  KV cache   {} tokens shared by all, {} {} (--kv-mem), pages of {}", s.max_total_tokens,
                  human_bytes(double(parts.sizing.kv_bytes)), kv_dtype_name(parts.sizing.runner.kv_dtype),
                  s.page_size),
      "  scheduler  " + schedule_line(s, engine.loop_at_start()),
      fmt::format("  template   {}", parts.chat_template_source),
      fmt::format("  stop ids   {}", stop_ids(*parts.tokenizer)),
      fmt::format("  access     {}", has_key ? "API key asked for" : "no API key (--api-key-file)"),
  };
  if (args.profile) lines.push_back("  profile    every operation is measured: GET /profile, and at the end");
  for (size_t i = 0; i < parts.sizing.notes.size() && i < 3; ++i)
    lines.push_back("  note       " + parts.sizing.notes[i]);
  lines.push_back("  listening  " + url);
  const std::string base = urls.empty() ? "http://127.0.0.1" : urls.front();
  const std::string header = has_key ? " -H 'Authorization: Bearer KEY'" : "";
  const bool chat = facts.has_chat_template;
  const std::string body = chat ? R"({"messages":[{"role":"user","content":"Hello!"}],"temperature":0})"
                                : R"({"prompt":"Hello,","temperature":0})";
  lines.push_back(fmt::format("  try        curl{} {}/v1/{} -H 'Content-Type: application/json' -d '{}'",
                              header, base, chat ? "chat/completions" : "completions", body));
  return lines;
}

std::string StatsLine::next(const SchedulerStats& now, double seconds, const SimDevice::Stats& sim) {
  const SchedulerStats last = std::exchange(last_, now);
  const std::string late = late_text(std::exchange(last_sim_, sim), sim);
  const bool quiet = now.running == 0 && now.queued == 0 && now.generation_tokens == last.generation_tokens &&
                     now.steps == last.steps;
  if (quiet || seconds <= 0) return {};
  const double prompt = double(now.prompt_tokens - last.prompt_tokens),
               cached = double(now.cached_tokens - last.cached_tokens);
  return fmt::format(
      "running {}, queued {}, KV {:.0f} % of {} tokens, prompt {:.0f} tok/s ({:.0f} % cached), generated "
      "{:.0f} tok/s{}{}",
      now.running, now.queued,
      now.kv_total_tokens ? 100.0 * double(now.kv_used_tokens) / double(now.kv_total_tokens) : 0.0,
      now.kv_total_tokens, prompt / seconds, prompt > 0 ? 100 * cached / prompt : 0.0,
      double(now.generation_tokens - last.generation_tokens) / seconds,
      now.retractions > last.retractions ? fmt::format(", {} retracted", now.retractions - last.retractions)
                                         : "",
      late);
}

std::string end_summary(const SchedulerStats& s, int64_t requests) {
  return fmt::format(
      "{} HTTP requests, {} prompt tokens ({:.0f} % cached), {} generated, peak KV {} of {} tokens", requests,
      s.prompt_tokens, s.prompt_tokens ? 100.0 * double(s.cached_tokens) / double(s.prompt_tokens) : 0.0,
      s.generation_tokens, s.kv_peak_tokens, s.kv_total_tokens);
}

}  // namespace gapless
