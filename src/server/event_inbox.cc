#include "server/event_inbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace gapless {

namespace {

double seconds_between(EventInbox::TimePoint a, EventInbox::TimePoint b) {
  return std::chrono::duration<double>(b - a).count();
}

int64_t size_of(const ChoiceDelta& delta) {
  int64_t bytes = static_cast<int64_t>(delta.text.size());
  for (const TokenText& token : delta.tokens)
    bytes += int64_t(sizeof(TokenText)) * int64_t(1 + token.top.size());
  return bytes;
}

}  // namespace

class EventInbox::Sink final : public ResponseSink {
 public:
  Sink(std::shared_ptr<EventInbox> inbox, int32_t prompt) : inbox_(std::move(inbox)), prompt_(prompt) {}
  void on_event(ResponseEvent event) override { inbox_->on_event(prompt_, std::move(event)); }

 private:
  const std::shared_ptr<EventInbox> inbox_;
  const int32_t prompt_;
};

EventInbox::EventInbox(int32_t prompts, int32_t choices_per_prompt, TimePoint received,
                       std::shared_ptr<ServerMetrics> metrics, std::function<void()> wake)
    : choices_per_prompt_(choices_per_prompt),
      received_(received),
      metrics_(std::move(metrics)),
      wake_(std::move(wake)),
      events_(prompts),
      clocks_(size_t(prompts) * choices_per_prompt) {}

std::shared_ptr<ResponseSink> EventInbox::sink(int32_t index) {
  return std::make_shared<Sink>(shared_from_this(), index);
}

void EventInbox::on_event(int32_t prompt, ResponseEvent event) {
  bool must_wake = false;
  {
    std::lock_guard lock(mutex_);
    PromptEvents& into = events_[prompt];
    if (auto* delta = std::get_if<ChoiceDelta>(&event)) {
      add_delta(prompt, std::move(*delta));
    } else if (auto* accepted = std::get_if<Accepted>(&event)) {
      into.accepted = std::move(*accepted);
    } else if (auto* scored = std::get_if<PromptScored>(&event)) {
      into.scored = std::move(*scored);
    } else if (auto* done = std::get_if<Done>(&event)) {
      into.done = *done;
    } else {
      into.failed = std::get<Failed>(std::move(event));
    }
    must_wake = !std::exchange(woken_, true);
  }
  if (must_wake) wake_();
}

void EventInbox::add_delta(int32_t prompt, ChoiceDelta delta) {
  CHECK(delta.index >= 0 && delta.index < choices_per_prompt_, "choice {} of {}", delta.index,
        choices_per_prompt_);
  measure(prompt, delta);
  backlog_bytes_ += size_of(delta);
  std::vector<ChoiceDelta>& deltas = events_[prompt].deltas;
  const auto waiting = std::find_if(deltas.begin(), deltas.end(),
                                    [&](const ChoiceDelta& d) { return d.index == delta.index; });
  if (waiting == deltas.end()) {
    deltas.push_back(std::move(delta));
    return;
  }
  waiting->text += delta.text;
  std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(waiting->tokens));
  if (delta.finish) waiting->finish = std::move(delta.finish);
  if (!delta.embedding.empty()) waiting->embedding = std::move(delta.embedding);
}

void EventInbox::measure(int32_t prompt, const ChoiceDelta& delta) {
  if (delta.tokens.empty()) return;
  const TimePoint now = std::chrono::steady_clock::now();
  if (!times_.first_token) {
    times_.first_token = now;
    metrics_->time_to_first_token.observe(seconds_between(received_, now));
  }
  times_.last_token = now;
  ChoiceClock& clock = clocks_[size_t(prompt) * choices_per_prompt_ + delta.index];
  if (clock.last_token) {
    const double each = seconds_between(*clock.last_token, now) / double(delta.tokens.size());
    for (size_t i = 0; i < delta.tokens.size(); i++) metrics_->inter_token_latency.observe(each);
  }
  clock.last_token = now;
}

std::vector<EventInbox::PromptEvents> EventInbox::take() {
  std::vector<PromptEvents> fresh(events_.size());
  std::lock_guard lock(mutex_);
  fresh.swap(events_);
  backlog_bytes_ = 0;
  woken_ = false;
  return fresh;
}

int64_t EventInbox::backlog_bytes() const {
  std::lock_guard lock(mutex_);
  return backlog_bytes_;
}

EventInbox::Times EventInbox::times() const {
  std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace gapless
