// What goes into the scheduler and what comes out of it. Everything here is moved from thread to thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "sampling/grammar.h"
#include "sampling/sampling_params.h"
#include "worker/model_worker_batch.h"

namespace gapless {

using RequestId = uint64_t;
using Clock = std::chrono::steady_clock;

// A request with its prompt tokenised and every parameter validated. Its n answers become n Reqs.
struct Request {
  RequestId id = 0;
  std::vector<int32_t> prompt_ids;  // not empty
  SamplingParams params;  // of choice 0; choice i gets params.choice = i. max_tokens 0: the prompt is
                          // computed, nothing emitted
  int32_t n = 1;
  std::vector<std::string> stop;    // raw bytes; none empty
  bool include_stop = false;        // the stop string or token that ends an answer is part of its text
  bool skip_special_tokens = true;  // control tokens contribute no text to stop matching
  int32_t prompt_logprob_begin =
      -1;  // >= 0: logprobs of prompt tokens prompt_logprob_begin + 1 .. end (and params.top_logprobs of
           // them); such a request does not read the prefix cache (it may fill it)
  int32_t embed_begin = -1;  // >= 0: an embedding is wanted, the mean hidden state of the prompt's positions
                             // embed_begin .. end; what it needs is not read from the prefix cache, which
                             // holds no hidden states. params.max_tokens is 0
  std::shared_ptr<const Grammar> grammar;  // null: none. One matcher per choice
  std::string cache_namespace;             // requests share cached prefixes only within one namespace
  std::string rid;  // what the client calls it, for those who operate the server; of no other meaning
  Clock::time_point arrival{};
};

struct AbortRequest {
  RequestId id = 0;
};
// Drops every cached prefix once nothing runs; the answer says how many tokens were dropped.
struct FlushCache {
  std::function<void(int64_t)> done;
};
// Goes on with the other loop, once nothing is in flight; requests that run are not disturbed.
enum class EventLoop : uint8_t { kNormal, kOverlap };
const char* event_loop_name(EventLoop loop);
struct SwitchLoop {
  EventLoop to = EventLoop::kOverlap;
  std::function<void()> done;  // scheduler thread, when the loop has been switched
};
// Asks what runs (scheduler/snapshot.h). Answered between two steps, also by a scheduler that is idle.
struct SchedulerSnapshot;
struct TakeSnapshot {
  std::function<void(SchedulerSnapshot&&)> taken;  // scheduler thread; must be short
};
using SchedulerMessage =
    std::variant<std::unique_ptr<Request>, AbortRequest, FlushCache, SwitchLoop, TakeSnapshot>;

enum class FinishReason : uint8_t { kStop, kLength, kAbort, kError };

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::variant<std::monostate, int32_t, std::string> matched;  // the token id or stop string that ended it
  Status status;                                               // kError: why; kAbort: kCancelled
};

struct OutputToken {
  int32_t id = 0;
  float logprob = 0;  // meaningful when logprobs were asked for
  std::vector<TokenLogprob> top;
};

// The new token of one choice. It allocates nothing unless top logprobs were asked for: a step sends one for
// every row. For every choice of every request the deltas are in order, the last one and only it has
// `finish`. A request refused before admission gets one delta per choice, with finish kError.
struct TokenDelta {
  RequestId id = 0;
  int32_t choice = 0;
  std::optional<OutputToken> token;
  // How many bytes of the answer's text so far (token bytes, control tokens counted as nothing unless wanted)
  // may be shown: the rest might be the start of a stop string, is the stop string, or is the token that
  // ended the answer.
  int64_t visible_bytes = 0;
  std::optional<Finish> finish;
  std::vector<float> embedding;  // with the finish, where one is wanted

  // With a choice's first delta.
  bool first = false;
  int32_t prompt_tokens = 0, cached_tokens = 0;  // cached_tokens: at first admission of choice 0
  std::vector<OutputToken> prompt_logprobs;      // one per prompt position begin + 1 .. end
};

// Where the scheduler sends its output: once per step, all deltas of the step. Called on the scheduler
// thread; must not block.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void on_tokens(std::vector<TokenDelta> deltas) = 0;
};

}  // namespace gapless
