#include <gapless/engine.h>

#include <stdexcept>

#include "library/callback_sink.h"
#include "library/requests.h"
#include "library/start.h"

namespace gapless {
inline namespace v1 {
namespace {

// The value, or the exception of the public header.
template <class T>
T value_or_throw(Result<T> result) {
  if (result.is_ok()) return std::move(result).value();
  const Status status = result.status();
  if (status.code() == StatusCode::kInvalidArgument) throw std::invalid_argument(status.message());
  throw std::runtime_error(status.message());
}

Engine::Model model_of(const ModelFacts& facts) {
  return {.name = facts.id,
          .architecture = facts.architecture,
          .quantisation = facts.quantisation,
          .parameters = facts.n_params,
          .vocab_size = facts.vocab_size,
          .context_length = facts.context_length,
          .has_chat_template = facts.has_chat_template};
}

}  // namespace

struct Engine::Inside {
  std::unique_ptr<EngineApi> api;
  Model model;
};

Engine::Engine(const Options& options) : inside_(std::make_unique<Inside>()) {
  inside_->api = value_or_throw(start_engine(engine_options(options)));
  inside_->model = model_of(inside_->api->model());
}

Engine::~Engine() = default;

uint64_t Engine::submit(Request request, OnDelta on_delta, OnEnd on_end) {
  return inside_->api->submit(generate_request(std::move(request)),
                              std::make_shared<CallbackSink>(std::move(on_delta), std::move(on_end)));
}

void Engine::abort(uint64_t id) {
  inside_->api->abort(id);
}

const Engine::Model& Engine::model() const {
  return inside_->model;
}

Engine::Stats Engine::stats() const {
  const LoadStats load = inside_->api->load();
  return {.running = load.running,
          .queued = load.queued,
          .kv_tokens = load.kv_tokens_total,
          .kv_tokens_used = load.kv_tokens_used,
          .kv_tokens_cached = load.kv_tokens_cached};
}

std::string Engine::metrics() const {
  return inside_->api->metrics().prometheus_text();
}

std::vector<int32_t> Engine::tokenize(const std::string& text, bool add_bos) const {
  return value_or_throw(inside_->api->tokenize(text, add_bos, /*parse_special=*/true));
}

std::string Engine::detokenize(const std::vector<int32_t>& ids) const {
  return value_or_throw(inside_->api->detokenize(ids, /*skip_special=*/false));
}

}  // namespace v1
}  // namespace gapless
