// Gapless as a library: one model, served inside this process. This is the only header; docs/library.md has a
// guide.
//
// Threads: any thread may call any member function, at the same time. Callbacks run on threads of the engine,
// one at a time for each request; they must be short, must not block and must not throw, and may call
// submit() and abort(). Several engines fit in one process.
//
// Errors: what answers at once throws: std::invalid_argument says what of the arguments cannot be used, and
// std::runtime_error is everything else. What is wrong with a request is in its Outcome. A defect of the
// library itself ends the process with a line on stderr.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gapless {
inline namespace v1 {  // in the linker's names only: write gapless::Engine

class Engine {
 public:
  // The flags of `gapless serve` with the same meaning (docs/cli.md); 0 and "" are its defaults.
  struct Options {
    std::string model_path{};          // a GGUF file; may be empty on a simulated device
    std::string device = "cpu";        // or "sim:PROFILE"
    std::string chat_template{};       // a built-in name or a path; empty: the file's own
    int32_t threads = 0;               // physical cores
    int32_t context_length = 0;        // the model's own
    int64_t kv_cache_bytes = 0;        // a quarter of the memory
    int32_t max_running_requests = 0;  // what suits the device
    int32_t max_queued_requests = 2048;
    bool overlap = true;  // prepare a step while the device computes the one before
  };

  struct Model {
    std::string name, architecture, quantisation;
    int64_t parameters = 0;
    int32_t vocab_size = 0;
    int32_t context_length = 0;  // tokens of prompt and answer together
    bool has_chat_template = false;
  };

  struct Message {
    std::string role, content;  // role as the template knows it: "system", "user", "assistant"
  };
  // A text, in which the spellings of control tokens are control tokens; token ids; or a chat, whose template
  // is the model's and in which they are ordinary characters. All of it UTF-8.
  using Prompt = std::variant<std::string, std::vector<int32_t>, std::vector<Message>>;

  // docs/sampling.md. Out of range: the request ends with kInvalid and the field's name.
  struct Sampling {
    float temperature = 1;           // 0 .. 2; 0: always the likeliest token
    int32_t top_k = 0;               // 0: all
    float top_p = 1;                 // above 0, up to 1
    float min_p = 0;                 // 0 .. 1
    float frequency_penalty = 0;     // -2 .. 2
    float presence_penalty = 0;      // -2 .. 2
    float repetition_penalty = 1;    // above 0, up to 2
    std::optional<uint64_t> seed{};  // none: random. The same seed gives the same answer, whatever else runs
    int32_t min_tokens = 0;          // no end before
    bool ignore_eos = false;
    std::vector<int32_t> stop_token_ids{};
    std::vector<std::pair<int32_t, float>> logit_bias{};  // token id and -100 .. 100
    int32_t top_logprobs = -1;  // 0 .. 20 alternatives for each token; -1: no logprobs at all
  };

  // What the answer is limited to.
  struct Grammar {
    enum class Kind {
      kJsonSchema,  // any JSON object: {"type": "object"}
      kRegex,       // of the whole answer
      kLark,        // llguidance's dialect of Lark
    } kind = Kind::kJsonSchema;
    std::string text;
  };

  struct Request {
    Prompt prompt{};
    std::optional<int32_t> max_tokens{};  // none: to the context's end. More than fits is cut
    int32_t n = 1;                        // answers to one prompt, which is computed once
    std::vector<std::string> stop{};      // an answer ends before any of these
    Sampling sampling{};
    std::optional<Grammar> grammar{};
    std::string cache_salt{};  // cached prefixes are shared only among requests with the same one
  };

  struct Token {
    int32_t id = 0;
    std::string bytes;       // may be a part of a character
    float logprob = 0;       // with top_logprobs >= 0
    std::vector<Token> top;  // the likeliest first
  };
  enum class Finish {
    kStop,    // end of text, a stop string or a stop token
    kLength,  // max_tokens or the context's end
    kBroken,  // aborted or failed: the Outcome says which
  };
  // What is new of one choice. The texts of a choice, in order, are its answer.
  struct Delta {
    int32_t choice = 0;
    std::string text;           // whole characters; never a part of a stop string
    std::vector<Token> tokens;  // their bytes may run ahead of `text`, which is held back while it may be a
                                // stop string
    std::optional<Finish> finish;  // in the last delta of the choice
  };

  enum class FailureKind {
    kInvalid,      // the request itself: `field` names what is at fault
    kOverloaded,   // the queue is full: try later
    kAborted,      // by abort()
    kUnavailable,  // the engine is being destroyed or makes no progress
    kInternal,     // an error of the device, or a defect
  };
  struct Failure {
    FailureKind kind = FailureKind::kInternal;
    std::string message, field;  // field: as it is called here
  };
  struct Outcome {
    std::optional<Failure> failure;  // none: every choice has its Finish
    int32_t prompt_tokens = 0, completion_tokens = 0;
    int32_t cached_tokens = 0;  // of the prompt: not computed again
  };
  // Called exactly once for each request, after its last delta.
  using OnEnd = std::function<void(const Outcome&)>;
  using OnDelta = std::function<void(const Delta&)>;

  struct Stats {
    int32_t running = 0, queued = 0;  // requests
    int64_t kv_tokens = 0;            // that the cache holds at most
    int64_t kv_tokens_used = 0;       // by running requests
    int64_t kv_tokens_cached = 0;     // prefixes kept for later requests
  };

  // Loads the model (seconds) and starts the threads. Throws when an option or the file cannot be used.
  explicit Engine(const Options& options);
  // Ends what is open with a failure and joins the threads. Not from a callback.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns at once; the id is for abort(). The callbacks and what they hold live until on_end has returned.
  // Either may be empty.
  uint64_t submit(Request request, OnDelta on_delta, OnEnd on_end);
  // The request ends with kAborted within a step, unless it has ended already. Any id may be given.
  void abort(uint64_t id);

  const Model& model() const;
  Stats stats() const;
  std::string metrics() const;  // the text of `GET /metrics`, as far as it is the engine's

  // Control tokens spelled in `text` become control tokens; the model's BOS goes in front if add_bos.
  std::vector<int32_t> tokenize(const std::string& text, bool add_bos = false) const;
  std::string detokenize(const std::vector<int32_t>& ids) const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace v1
}  // namespace gapless
