#include "server/testing/fake_engine.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "server/json_writer.h"

namespace gapless::testing {

namespace {

constexpr int32_t kBos = 256, kFirstWord = 258;
// The emoji is cut into two tokens, and " \"q\"\n" needs escapes.
constexpr const char* kWords[] = {" alpha",   " b\xC3\xA9ta",  "\xF0\x9F", "\x98\x80",
                                  " \"q\"\n", " \xE6\xBC\xA2", " delta",   "."};
constexpr int32_t kWordCount = std::size(kWords);

// The length of the longest front of `bytes` that ends between characters.
size_t whole_length(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); back++) {
    const auto c = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if (c < 0x80) break;
    const size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 0;
    if (need != 0) return need > back ? bytes.size() - back : bytes.size();
  }
  return bytes.size();
}

}  // namespace

struct FakeEngine::Running {
  RequestId id;
  GenerateRequest request;
  std::shared_ptr<ResponseSink> sink;
  std::vector<int32_t> prompt;
  struct Answer {
    std::string held;  // bytes that are not whole characters yet
    int32_t tokens = 0;
    bool ended = false;
  };
  std::vector<Answer> answers;
  bool scored = false;
};

FakeEngine::FakeEngine(FakeOptions options) : options_(std::move(options)) {
  model_.id = "fake-model";
  model_.architecture = "fake";
  model_.vocab_size = kFirstWord + kWordCount;
  model_.context_length = 4096;
  model_.embedding_dim = 2;
  model_.device = "none";
  model_.page_size = 16;
  model_.max_running_requests = int32_t(options_.max_running);
  model_.created = 1700000000;
  model_.has_chat_template = true;
  model_.marks_reasoning = options_.marks_reasoning;
  model_.chat_template = "{{ messages }}";
  model_.eos_token = "</s>";
  pool_thread_ = NamedThread("fake-pool", [this] {
    while (auto job = pool_jobs_.pop()) (*job)();
  });
  thread_ = NamedThread("fake-engine", [this] { loop(); });
}

FakeEngine::~FakeEngine() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  pool_jobs_.close();
}

RequestId FakeEngine::submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) {
  auto running = std::make_unique<Running>();
  running->prompt = ids_of(request);
  running->answers.resize(request.n);
  running->sink = std::move(sink);
  std::lock_guard lock(mutex_);
  submitted_.push_back(request);
  running->request = std::move(request);
  const RequestId id = running->id = next_id_++;
  fresh_.push_back(std::move(running));
  changed_.notify_all();
  return id;
}

void FakeEngine::abort(RequestId id) {
  std::lock_guard lock(mutex_);
  to_abort_.push_back(id);
  changed_.notify_all();
}

void FakeEngine::loop() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    accept_new(lock);
    abort_asked(lock);
    while (!queued_.empty() && running_.size() < options_.max_running) {
      running_.push_back(std::move(queued_.front()));
      queued_.pop_front();
    }
    if (paused_ || running_.empty()) {
      // Both calls above let go of the lock, so anything may have changed since it was looked at.
      changed_.wait(lock, [this] {
        return closing_ || !fresh_.empty() || !to_abort_.empty() || (!paused_ && !running_.empty());
      });
      continue;
    }
    if (options_.step.count() > 0) changed_.wait_for(lock, options_.step, [this] { return closing_; });
    steps_++;
    std::deque<std::unique_ptr<Running>> batch = std::move(running_);
    running_.clear();
    stepping_ = batch.size();
    lock.unlock();
    std::deque<std::unique_ptr<Running>> left;
    for (auto& r : batch) {
      if (!step(*r)) left.push_back(std::move(r));
    }
    batch.clear();
    lock.lock();
    running_ = std::move(left);
    stepping_ = 0;
  }
}

// As the real engine, every open choice ends with kAbort, and then the request.
void FakeEngine::abort_asked(std::unique_lock<std::mutex>& lock) {
  std::vector<std::unique_ptr<Running>> aborted;
  for (const RequestId id : std::exchange(to_abort_, {})) {
    for (auto* list : {&queued_, &running_}) {
      const auto it = std::find_if(list->begin(), list->end(), [&](const auto& r) { return r->id == id; });
      if (it == list->end()) continue;
      aborts_++;
      aborted.push_back(std::move(*it));
      list->erase(it);
    }
  }
  lock.unlock();
  for (const auto& r : aborted) {
    for (int32_t c = 0; c < r->request.n; c++) {
      if (r->answers[c].ended) continue;
      r->sink->on_event(
          ChoiceDelta{.index = c, .text = {}, .tokens = {}, .finish = Finish{FinishReason::kAbort, {}, {}}});
    }
    r->sink->on_event(Done{});
  }
  aborted.clear();
  lock.lock();
}

void FakeEngine::accept_new(std::unique_lock<std::mutex>& lock) {
  while (!fresh_.empty()) {
    std::unique_ptr<Running> r = std::move(fresh_.front());
    fresh_.pop_front();
    Status refused = options_.refuse ? options_.refuse(r->request) : Status();
    if (r->prompt.empty())
      refused = Status::invalid("the prompt is empty and this model has no BOS").with_param("prompt");
    const bool full = running_.size() + queued_.size() >= options_.max_running + options_.queue_limit;
    if (refused.is_ok() && full) {
      refused = Status(StatusCode::kResourceExhausted,
                       fmt::format("the queue is full ({} requests wait)", queued_.size()));
    }
    const bool ok = refused.is_ok();
    Accepted accepted;
    if (ok) {
      accepted.prompt_ids = r->prompt;
      if (r->request.want_prompt_text || r->request.want_prompt_logprobs) {
        for (const int32_t id : r->prompt) accepted.prompt_tokens.push_back({id, bytes_of(id), 0, {}});
      }
      accepted.opens_reasoning = options_.opens_reasoning;
      if (r->request.want_prompt_text) {
        for (const int32_t id : r->prompt) accepted.prompt_text += bytes_of(id);
      }
    }
    const std::shared_ptr<ResponseSink> sink = r->sink;
    if (ok) queued_.push_back(std::move(r));
    lock.unlock();
    ok ? sink->on_event(std::move(accepted)) : sink->on_event(Failed{refused});
    lock.lock();
  }
}

bool FakeEngine::step(Running& r) {
  const SamplingParams& params = r.request.sampling;
  if (r.request.want_prompt_logprobs && !std::exchange(r.scored, true)) {
    PromptScored scored;
    for (size_t i = 1; i < r.prompt.size(); i++)
      scored.tokens.push_back(token(r.prompt[i], r.request, int32_t(i)));
    r.sink->on_event(std::move(scored));
  }
  const int32_t limit = r.request.max_tokens.value_or(std::numeric_limits<int32_t>::max());
  bool all_ended = true;
  for (int32_t c = 0; c < r.request.n; c++) {
    Running::Answer& answer = r.answers[c];
    if (answer.ended) continue;
    ChoiceDelta delta{.index = c, .text = {}, .tokens = {}, .finish = {}};
    Status fault = options_.fault ? options_.fault(r.request, c, answer.tokens) : Status();
    if (!fault.is_ok()) {
      const bool abort = fault.code() == StatusCode::kCancelled;
      delta.finish = Finish{abort ? FinishReason::kAbort : FinishReason::kError, {}, fault};
    } else if (answer.tokens < limit) {
      const int32_t id = answer_id(r.prompt, c, answer.tokens++);
      delta.tokens.push_back(token(id, r.request, answer.tokens));
      answer.held += bytes_of(id);
    }
    const int32_t length = options_.script.empty() ? options_.answer_tokens : int32_t(options_.script.size());
    const bool eos = !params.ignore_eos && answer.tokens >= length;
    if (!delta.finish && eos) delta.finish = Finish{FinishReason::kStop, kBos + 1, {}};
    if (!delta.finish && answer.tokens >= limit) delta.finish = Finish{FinishReason::kLength, {}, {}};
    answer.ended = delta.finish.has_value();
    if (answer.ended && r.request.embedding)
      delta.embedding = {3.0f * float(r.prompt.front()), 4.0f * float(r.prompt.front())};
    all_ended = all_ended && answer.ended;
    const size_t whole = answer.ended ? answer.held.size() : whole_length(answer.held);
    append_utf8_lossy(delta.text, std::string_view(answer.held).substr(0, whole));
    answer.held.erase(0, whole);
    r.sink->on_event(std::move(delta));
  }
  if (!all_ended) return false;
  Usage usage{.prompt_tokens = int32_t(r.prompt.size()), .completion_tokens = 0, .cached_tokens = 0};
  for (const auto& answer : r.answers) usage.completion_tokens += answer.tokens;
  r.sink->on_event(Done{usage});
  return true;
}

TokenText FakeEngine::token(int32_t id, const GenerateRequest& request, int32_t index) const {
  TokenText out{id, bytes_of(id), -0.1f - 0.3f * float(index % 5), {}};
  for (int32_t i = 0; i < request.sampling.top_logprobs; i++) {
    const int32_t other = i == 0 ? id : kFirstWord + (id + i) % kWordCount;
    out.top.push_back({other,
                       bytes_of(other),
                       i == 0   ? out.logprob
                       : i == 2 ? -std::numeric_limits<float>::infinity()
                                : -5.0f - i,
                       {}});
  }
  return out;
}

std::string FakeEngine::bytes_of(int32_t id) const {
  if (id < 256) return std::string(1, static_cast<char>(id));
  if (id < kFirstWord) return id == kBos ? "<s>" : "</s>";
  std::string out;
  for (int32_t i = 0; i < options_.word_repeat; i++) out += kWords[id - kFirstWord];
  return out;
}

std::vector<int32_t> FakeEngine::ids_of(const GenerateRequest& request) const {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.prompt)) return *ids;
  std::vector<int32_t> ids;
  const auto* text = std::get_if<TextPrompt>(&request.prompt);
  for (const char c : text ? text->text : std::get<ChatPrompt>(request.prompt).messages)
    ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

int32_t FakeEngine::answer_id(const std::vector<int32_t>& prompt, int32_t choice, int32_t index) const {
  if (!options_.script.empty())
    return static_cast<unsigned char>(options_.script[size_t(index) % options_.script.size()]);
  const int64_t start = std::accumulate(prompt.begin(), prompt.end(), int64_t{0}) + 3 * choice;
  return kFirstWord + static_cast<int32_t>((start + index) % kWordCount);
}

std::string FakeEngine::answer(const std::string& prompt, int32_t choice, int32_t n_tokens) const {
  std::vector<int32_t> ids;
  for (const char c : prompt) ids.push_back(static_cast<unsigned char>(c));
  std::string bytes;
  for (int32_t i = 0; i < n_tokens; i++) bytes += bytes_of(answer_id(ids, choice, i));
  std::string text;
  append_utf8_lossy(text, bytes);
  return text;
}

Status FakeEngine::ready() const {
  std::lock_guard lock(mutex_);
  return ready_;
}
void FakeEngine::set_ready(Status status) {
  std::lock_guard lock(mutex_);
  ready_ = std::move(status);
}
LoadStats FakeEngine::load() const {
  std::lock_guard lock(mutex_);
  LoadStats stats;
  stats.running = static_cast<int32_t>(running_.size() + stepping_);
  stats.queued = static_cast<int32_t>(queued_.size() + fresh_.size());
  return stats;
}
void FakeEngine::pause() {
  std::lock_guard lock(mutex_);
  paused_ = true;
}
void FakeEngine::resume() {
  std::lock_guard lock(mutex_);
  paused_ = false;
  changed_.notify_all();
}
std::vector<GenerateRequest> FakeEngine::submitted() const {
  std::lock_guard lock(mutex_);
  return submitted_;
}
int64_t FakeEngine::aborts() const {
  std::lock_guard lock(mutex_);
  return aborts_;
}
int64_t FakeEngine::steps() const {
  std::lock_guard lock(mutex_);
  return steps_;
}

Result<std::vector<int32_t>> FakeEngine::tokenize(const std::string& text, bool add_special,
                                                  bool parse_special) const {
  std::vector<int32_t> ids;
  if (add_special) ids.push_back(kBos);
  size_t begin = 0;
  if (parse_special && text.starts_with("<s>")) {
    ids.push_back(kBos);
    begin = 3;
  }
  for (size_t i = begin; i < text.size(); i++) ids.push_back(static_cast<unsigned char>(text[i]));
  return ids;
}

Result<std::string> FakeEngine::detokenize(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids) {
    if (!skip_special || id < kBos || id >= kFirstWord) out += bytes_of(id);
  }
  return out;
}

Result<RenderedChat> FakeEngine::render_chat(const ChatPrompt& chat) const {
  GenerateRequest request;
  request.prompt = chat;
  return RenderedChat{chat.messages, ids_of(request)};
}

}  // namespace gapless::testing
