// What the server sees of the engine: submit a request, get events, abort. Any thread may call any of it;
// nothing blocks on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/metrics.h"
#include "base/status.h"
#include "base/trace.h"
#include "engine/profile_report.h"
#include "engine/tool_format.h"
#include "sampling/grammar.h"
#include "scheduler/request.h"

namespace gapless {

// A chat to be rendered by the model's template. JSON texts, already known to be well-formed; the template
// layer checks their meaning.
struct ChatPrompt {
  std::string messages;         // array
  std::string tools;            // array of objects, or empty
  std::string template_kwargs;  // object, or empty
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};
// A chat as the model reads it.
struct RenderedChat {
  std::string text;
  std::vector<int32_t> ids;
};
struct TextPrompt {
  std::string text;
  bool add_special = true;    // BOS as the model's rules say
  bool parse_special = true;  // control-token spellings become control tokens (raw completions)
};
using Prompt = std::variant<TextPrompt, std::vector<int32_t>, ChatPrompt>;

// Which hidden states of a prompt its embedding is made of: the last one, or the mean of all.
enum class Pooling : uint8_t { kLast, kMean };

// One prompt with n answers. A list of prompts is several of these.
struct GenerateRequest {
  Prompt prompt;
  SamplingParams sampling;  // max_tokens, seed and stop_token_ids as the client gave them, see below; ranges
                            // checked by the engine
  std::optional<int32_t>
      max_tokens;                // none: up to the context's end. More than fits is clipped to the context
  std::optional<uint64_t> seed;  // none: drawn at random
  int32_t n = 1;
  std::vector<std::string> stop;
  bool include_stop = false;  // what ended the answer is part of its text
  bool skip_special_tokens = true;
  bool want_prompt_text = false;  // Accepted carries the prompt's text per token (echo)
  bool want_prompt_logprobs = false;
  std::string cache_salt;
  std::string rid;  // what the client calls it, for those who operate the server; of no other meaning
  std::optional<Pooling> embedding;    // instead of an answer; max_tokens is 0, n is 1
  std::optional<GrammarSpec> grammar;  // what the answer is limited to
  std::string grammar_field;           // what the client calls it, for errors
};

struct Usage {
  int32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// A token as clients see it. `bytes` may be part of a character.
struct TokenText {
  int32_t id = 0;
  std::string bytes;
  float logprob = 0;
  std::vector<TokenText> top;  // most likely first; their own `top` is empty
  size_t text_begin = 0;       // where in `bytes` begins what the token adds to the text

  // A control token that is left out of the text adds nothing.
  std::string_view text() const { return std::string_view(bytes).substr(text_begin); }
};

// First event of a request that was not refused.
struct Accepted {
  std::vector<int32_t> prompt_ids;
  bool opens_reasoning = false;  // the chat's text ends with <think>: the answer begins with what follows it
  std::string prompt_text;  // want_prompt_text: a text as the client wrote it, ids decoded as an answer is
  std::vector<TokenText>
      prompt_tokens;  // want_prompt_text or want_prompt_logprobs: one per prompt id, without logprobs
};
// Before the first ChoiceDelta when want_prompt_logprobs: logprobs of prompt tokens 1 .. n - 1 (token 0 has
// none).
struct PromptScored {
  std::vector<TokenText> tokens;
};
struct ChoiceDelta {
  int32_t index = 0;
  std::string text;  // whole characters only; never a part of a stop string
  std::vector<TokenText>
      tokens;  // the tokens of this delta (their bytes need not add up to `text`: text may be held back)
  std::optional<Finish> finish;  // in the last delta of the choice
  std::vector<float> embedding =
      {};                     // with the finish, where one is wanted: ModelFacts::embedding_dim of them
  int32_t cached_tokens = 0;  // as in Usage: of the prompt, known since the first delta
};
// After the last delta of all choices: the request is gone.
struct Done {
  Usage usage;
};
// Instead of everything else, or after Accepted in place of Done.
struct Failed {
  Status status;
};
using ResponseEvent = std::variant<Accepted, PromptScored, ChoiceDelta, Done, Failed>;

// Receives the events of one request, in order, one thread at a time (an engine thread). Must not block.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual void on_event(ResponseEvent event) = 0;
};

// Facts about what is being served, fixed once loaded.
struct ModelFacts {
  std::string id;  // the name clients see: --served-model-name or the file's name
  std::string path, architecture, name, quantisation;
  int64_t n_params = 0, file_bytes = 0, created = 0;  // created: seconds since 1970, when the server started
  int32_t vocab_size = 0;
  int32_t context_length = 0;          // what a request may use here
  int32_t trained_context_length = 0;  // what the model was made for
  int32_t embedding_dim = 0;           // 0: the model gives no embeddings
  std::string device;                  // as --device names it
  int32_t page_size = 0, max_running_requests = 0;
  bool has_chat_template = false;
  const ToolFormat* tool_format = &tool_formats().front();  // how it writes calls of functions
  bool marks_reasoning = false;                             // what it thinks stands before </think>
  std::string chat_template;                                // its source
  std::string bos_token, eos_token;                         // as they are spelled; empty: the model has none
};

struct LoadStats {
  int32_t running = 0, queued = 0;
  int64_t kv_tokens_total = 0, kv_tokens_used = 0, kv_tokens_cached = 0;
};

class EngineApi {
 public:
  virtual ~EngineApi() = default;
  // The id is valid for abort() until Done or Failed.
  virtual RequestId submit(GenerateRequest request, std::shared_ptr<ResponseSink> sink) = 0;
  virtual void abort(RequestId id) = 0;

  // Loading, draining or stuck: not ready, with the reason. Stuck: work exists but no step has finished for a
  // stated time.
  virtual Status ready() const = 0;
  virtual const ModelFacts& model() const = 0;
  virtual LoadStats load() const = 0;
  virtual MetricsRegistry& metrics() = 0;
  virtual Tracer& tracer() = 0;
  // Where the time of steps went since the start or the last reset_profile(). An error (kInvalid): the engine
  // does not measure that.
  virtual Result<ProfileReport> profile() const = 0;
  virtual void reset_profile() = 0;

  // CPU work on the calling thread, at most milliseconds for texts up to the body limit; callers run it on
  // text_pool().
  virtual Result<std::vector<int32_t>> tokenize(const std::string& text, bool add_special,
                                                bool parse_special) const = 0;
  virtual Result<std::string> detokenize(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  virtual Result<RenderedChat> render_chat(const ChatPrompt& chat) const = 0;
  // The loop that runs.
  virtual EventLoop event_loop() const = 0;
  // Goes on with the other loop once the steps in flight have ended; requests that run are not disturbed.
  // Never blocks: `switched` is called on the scheduler's thread at that moment, between the last step before
  // the switch and the first one after it, and must be short. False: the engine is stopped, and it never is.
  virtual bool switch_loop(EventLoop to, std::function<void()> switched) = 0;
  // Drops every cached prefix once nothing runs; until then nothing new begins. Never blocks: `flushed` is
  // called on the scheduler's thread with the number of tokens dropped, and must be short. False: the engine
  // is stopped, and it never is.
  virtual bool flush_cache(std::function<void(int64_t)> flushed) = 0;
  // What runs (scheduler/snapshot.h). Never blocks: `taken` is called on the scheduler's thread between two
  // steps, and must be short. False: the engine is stopped, and it never is.
  virtual bool take_snapshot(std::function<void(SchedulerSnapshot&&)> taken) = 0;
  // Runs `job` on the text pool. False: the pool is shut down or its queue is full.
  virtual bool run_on_text_pool(std::function<void()> job) = 0;
};

// Blocks until it is done; -1 when the engine is stopped.
int64_t flush_cache_and_wait(EngineApi& engine);
// Blocks until the loop has been switched.
bool switch_loop_and_wait(
    EngineApi& engine, EventLoop to, std::function<void()> switched = [] {});

}  // namespace gapless
