// An engine without a model, for tests of the HTTP side: deterministic answers, one token per step and
// choice, scripted delays and failures, a record of what was submitted and aborted. Ids below 256 are bytes,
// then BOS and EOS, then the words of its answers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/queue.h"
#include "base/thread.h"
#include "engine/engine_api.h"
#include "scheduler/snapshot.h"

namespace gapless::testing {

struct FakeOptions {
  std::chrono::microseconds step{0};  // how long one step takes
  size_t max_running = 64;
  size_t queue_limit = 1000;
  int32_t answer_tokens = 8;  // where EOS comes
  int32_t word_repeat = 1;  // how often each word's text is repeated: large tokens for tests of slow readers
  std::string script = {};  // what every answer is instead of words, a token for each byte
  bool marks_reasoning = false;  // as ModelFacts says
  bool opens_reasoning = false;  // every prompt does
  // Refuses a request before it is accepted.
  std::function<Status(const GenerateRequest&)> refuse = {};
  // Fails a choice at a token; kCancelled: aborts it.
  std::function<Status(const GenerateRequest&, int32_t choice, int32_t token)> fault = {};
};

class FakeEngine final : public EngineApi {
 public:
  explicit FakeEngine(FakeOptions options = {});
  ~FakeEngine() override;

  RequestId submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) override;
  void abort(RequestId id) override;
  Status ready() const override;
  const ModelFacts& model() const override { return model_; }
  LoadStats load() const override;
  MetricsRegistry& metrics() override { return metrics_; }
  Tracer& tracer() override { return tracer_; }
  Result<ProfileReport> profile() const override { return profiles; }
  void reset_profile() override { profile_resets++; }
  Result<std::vector<int32_t>> tokenize(const std::string& text, bool add_special,
                                        bool parse_special) const override;
  Result<std::string> detokenize(const std::vector<int32_t>& ids, bool skip_special) const override;
  // The chat's JSON as it is.
  Result<RenderedChat> render_chat(const ChatPrompt& chat) const override;
  EventLoop event_loop() const override { return event_loop_; }
  bool switch_loop(EventLoop to, std::function<void()> switched) override {
    event_loop_ = to;
    if (hold_switches) {
      held_switches.try_push(std::move(switched));
    } else {
      switched();
    }
    return true;
  }
  bool flush_cache(std::function<void(int64_t)> flushed) override {
    flushed(++flushes);
    return true;
  }
  // On the caller's thread.
  bool take_snapshot(std::function<void(SchedulerSnapshot&&)> taken) override {
    snapshots++;
    taken(SchedulerSnapshot(snapshot));
    return true;
  }
  bool run_on_text_pool(std::function<void()> job) override { return pool_jobs_.try_push(std::move(job)); }

  Result<ProfileReport> profiles = ProfileReport{"a table", R"({"steps":[]})"};
  SchedulerSnapshot snapshot;  // what take_snapshot() answers; set before anybody asks
  std::atomic<int> profile_resets{0}, flushes{0}, snapshots{0};

  // The text of the first n answer tokens: what a client must get, whether streamed or not.
  std::string answer(const std::string& prompt, int32_t choice, int32_t n_tokens) const;

  std::atomic<bool> hold_switches{false};
  Queue<std::function<void()>> held_switches;  // the test's to call
  void set_ready(Status status);
  void pause();  // no step is made until resume()
  void resume();
  std::vector<GenerateRequest> submitted() const;
  int64_t aborts() const;
  int64_t steps() const;

 private:
  struct Running;
  void loop();
  void abort_asked(std::unique_lock<std::mutex>& lock);
  void accept_new(std::unique_lock<std::mutex>& lock);
  bool step(Running& running);  // true: the request is over
  TokenText token(int32_t id, const GenerateRequest& request, int32_t index) const;
  std::string bytes_of(int32_t id) const;
  std::vector<int32_t> ids_of(const GenerateRequest& request) const;
  int32_t answer_id(const std::vector<int32_t>& prompt, int32_t choice, int32_t index) const;

  const FakeOptions options_;
  ModelFacts model_;
  MetricsRegistry metrics_;
  Tracer tracer_{1024};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Running>> fresh_, queued_, running_;
  size_t stepping_ = 0;  // requests that are in the step being made, and so not in running_
  std::vector<RequestId> to_abort_;
  std::vector<GenerateRequest> submitted_;
  Status ready_;
  std::atomic<EventLoop> event_loop_{EventLoop::kOverlap};
  RequestId next_id_ = 1;
  int64_t aborts_ = 0, steps_ = 0;
  bool paused_ = false, closing_ = false;

  Queue<std::function<void()>> pool_jobs_;
  NamedThread pool_thread_, thread_;
};

}  // namespace gapless::testing
