#include "apps/steady_load.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/queue.h"

namespace gapless {

namespace {

constexpr float kPresence = 0.4f, kFrequency = 0.2f, kRepetition = 1.1f;
// The engine holds so many texts that are not yet tokenized, and some more; a flood is refused.
constexpr int64_t kMaxBehind = 1024;

// How one load's requests ended, for its thread.
struct End {
  int64_t index;
  Status status;
};
struct Ends {
  Queue<End> queue;
  std::atomic<int64_t> accepted{0}, tokens{0};
};

class CountingSink : public ResponseSink {
 public:
  CountingSink(std::shared_ptr<Ends> ends, int64_t index) : ends_(std::move(ends)), index_(index) {}
  void on_event(ResponseEvent event) override {
    if (const auto* delta = std::get_if<ChoiceDelta>(&event)) {
      ends_->tokens.fetch_add(int64_t(delta->tokens.size()), std::memory_order_relaxed);
      if (delta->finish && delta->finish->reason == FinishReason::kError) error_ = delta->finish->status;
    } else if (std::holds_alternative<Accepted>(event)) {
      ++ends_->accepted;
    } else if (const auto* failed = std::get_if<Failed>(&event)) {
      ends_->queue.try_push({index_, failed->status});
    } else if (std::holds_alternative<Done>(event)) {
      ends_->queue.try_push({index_, std::move(error_)});
    }
  }

 private:
  const std::shared_ptr<Ends> ends_;
  const int64_t index_;
  Status error_;
};

class InprocLoad : public SteadyLoad {
 public:
  InprocLoad(Engine& engine, const LoadShape& shape, uint64_t seed)
      : engine_(engine), shape_(shape), prompts_(*engine.parts().tokenizer, seed) {
    thread_ = NamedThread("load", [this] { run(); });
  }
  ~InprocLoad() override {
    stopping_ = true;
    ends_->queue.close();
    thread_.join();
    for (const auto& [index, id] : open_) engine_.abort(id);
  }
  Status error() const override {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  void run() {
    for (int32_t i = 0; i < shape_.open && !stopping_; ++i) {
      while (submitted_ - ends_->accepted > kMaxBehind && !stopping_)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      submit();
    }
    while (std::optional<End> end = ends_->queue.pop()) {
      open_.erase(end->index);
      if (stopping_) continue;
      if (!end->status.is_ok()) return fail(std::move(end->status));
      submit();
    }
  }
  void submit() {
    const int64_t index = submitted_++;
    const ShapedLength length = shaped_length(shape_, index);
    open_[index] = engine_.submit(shaped_request(shape_, prompts_.next(length.prompt), length.decode),
                                  std::make_shared<CountingSink>(ends_, index));
  }
  void fail(Status status) {
    std::lock_guard lock(mutex_);
    error_ = std::move(status);
  }

  Engine& engine_;
  const LoadShape shape_;
  const std::shared_ptr<Ends> ends_ = std::make_shared<Ends>();
  std::atomic<bool> stopping_{false};
  // The load's thread, and after it the destructor.
  RandomPrompts prompts_;
  int64_t submitted_ = 0;
  std::unordered_map<int64_t, RequestId> open_;

  mutable std::mutex mutex_;
  Status error_;
  NamedThread thread_;
};

}  // namespace

GenerateRequest shaped_request(const LoadShape& shape, std::vector<int32_t> prompt, int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.top_logprobs = shape.logprobs;
  if (shape.penalties) {
    request.sampling.presence_penalty = kPresence;
    request.sampling.frequency_penalty = kFrequency;
    request.sampling.repetition_penalty = kRepetition;
  }
  request.max_tokens = max_tokens;
  return request;
}

std::string shaped_body(const LoadShape& shape, const std::vector<int32_t>& prompt, int32_t max_tokens) {
  nlohmann::ordered_json body{{"model", "default"}, {"stream", true},           {"temperature", 0},
                              {"ignore_eos", true}, {"max_tokens", max_tokens}, {"prompt", prompt}};
  if (shape.logprobs >= 0) body["logprobs"] = shape.logprobs;
  if (shape.penalties) {
    body["presence_penalty"] = kPresence;
    body["frequency_penalty"] = kFrequency;
    body["repetition_penalty"] = kRepetition;
  }
  return body.dump();
}

std::vector<int32_t> RandomPrompts::next(int32_t length) {
  std::uniform_int_distribution<int32_t> id(0, tokenizer_.vocab_size() - 1);
  std::vector<int32_t> prompt;
  while (int32_t(prompt.size()) < length)
    if (const int32_t candidate = id(random_); !tokenizer_.is_control(candidate)) prompt.push_back(candidate);
  return prompt;
}

ShapedLength shaped_length(const LoadShape& shape, int64_t index) {
  if (index >= shape.open) return {shape.prompt_tokens, shape.decode_tokens};
  const int32_t left = std::max<int32_t>(1, int32_t((index + 1) * shape.decode_tokens / shape.open));
  return {shape.prompt_tokens + shape.decode_tokens - left, left};
}

std::unique_ptr<SteadyLoad> inproc_load(Engine& engine, const LoadShape& shape, uint64_t seed) {
  return std::make_unique<InprocLoad>(engine, shape, seed);
}

}  // namespace gapless
