#include "server/operations.h"

#include "base/log.h"
#include "server/api_error.h"
#include "server/field_reader.h"
#include "server/json_body.h"
#include "server/json_writer.h"
#include "server/later_response.h"

namespace gapless {

namespace {

using namespace std::chrono_literals;

constexpr auto kProbeLimit = 20s;
constexpr size_t kMaxAbortBody = 4096;
constexpr int64_t kMaxJsonInteger = int64_t{1} << 53;  // what every client can write exactly

class ProbeResponse final : public LaterResponse,
                            public ResponseSink,
                            public std::enable_shared_from_this<ProbeResponse> {
 public:
  using LaterResponse::LaterResponse;

  void start(std::function<void()> wake) override {
    wake_ = std::move(wake);
    GenerateRequest request;
    request.prompt = std::vector<int32_t>{0};  // a token that every vocabulary has
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    id_ = serving_->engine.submit(std::move(request), shared_from_this());
  }

  void on_event(ResponseEvent event) override {
    if (const auto* failed = std::get_if<Failed>(&event)) {
      finish(failed->status);
    } else if (std::holds_alternative<Done>(event)) {
      finish(std::string(R"({"status":"ok"})"));
    } else {
      return;
    }
    wake_();
  }

  Part keepalive() override {
    if (std::chrono::steady_clock::now() - request_.received < kProbeLimit) return {};
    cancel(Status(StatusCode::kUnavailable,
                  fmt::format("no token was generated within {} s", kProbeLimit.count())));
    return take();
  }

  void cancel(const Status& why) override {
    LaterResponse::cancel(why);  // first: the engine may end the request at once
    serving_->engine.abort(id_);
  }

 private:
  std::function<void()> wake_;
  RequestId id_ = 0;
};

// Answered by the scheduler: no thread waits for that.
class FlushResponse final : public LaterResponse, public std::enable_shared_from_this<FlushResponse> {
 public:
  using LaterResponse::LaterResponse;
  void start(std::function<void()> wake) override {
    auto flushed = [self = shared_from_this(), wake = std::move(wake)](int64_t tokens) {
      spdlog::info("prefix cache: {} tokens dropped", tokens);
      std::string out;
      JsonWriter(out).begin_object().key("flushed_tokens").integer(tokens).end_object();
      self->finish(std::move(out));
      wake();
    };
    if (!serving_->engine.flush_cache(std::move(flushed)))
      finish(Status(StatusCode::kUnavailable, "the server is shutting down"));
  }
};

// The requests that the body names.
Result<std::vector<RequestId>> requests_to_abort(const Serving& serving, std::string text) {
  if (text.size() > kMaxAbortBody) return Status::invalid("the body has more than {} bytes", kMaxAbortBody);
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(text)));
  FieldReader fields(body.root());
  std::string name;
  std::optional<RequestId> number;
  bool all = false;
  fields.string("rid", name);
  fields.integer("id", 1, kMaxJsonInteger, number);
  fields.boolean("abort_all", all);
  if (name.empty() && !number && !all)
    fields.fail("rid", R"(rid is missing: the name of a request, or "id": its number, or "abort_all": true)");
  RETURN_IF_ERROR(fields.status());
  std::vector<RequestId> ids;
  for (const auto& [open, id] : serving.open_requests)
    if (all || open == name || id == number) ids.push_back(id);
  return ids;
}

}  // namespace

Reply probe_generation(Call call) {
  return std::make_shared<ProbeResponse>(std::move(call.serving), std::move(call.request));
}

Reply show_model_info(Call call) {
  const ModelFacts& model = call.serving->engine.model();
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  w.key("model_path").string(model.path);
  w.key("tokenizer_path").string(model.path);  // a GGUF file has both
  w.key("is_generation").boolean(true);
  w.key("preferred_sampling_params").null();
  w.key("has_image_understanding").boolean(false);
  w.key("has_audio_understanding").boolean(false);
  w.key("model_type").string(model.architecture);
  w.key("architectures").begin_array().string(model.architecture).end_array();
  w.end_object();
  return json_response(std::move(out));
}

Reply show_server_info(Call call) {
  const EngineApi& engine = call.serving->engine;
  const ModelFacts& model = engine.model();
  const LoadStats load = engine.load();
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  w.key("model_path").string(model.path);
  w.key("tokenizer_path").string(model.path);
  w.key("served_model_name").string(model.id);
  w.key("is_generation").boolean(true);
  w.key("version").string(GAPLESS_VERSION);
  w.key("context_length").integer(model.context_length);
  w.key("max_total_num_tokens").integer(load.kv_tokens_total);
  w.key("tp_size").integer(1);
  w.key("dp_size").integer(1);
  w.key("disable_overlap_schedule").boolean(engine.event_loop() == EventLoop::kNormal);
  w.key("internal_states").begin_array().begin_object();
  w.key("num_running_reqs").integer(load.running);
  w.key("num_waiting_reqs").integer(load.queued);
  w.key("num_used_tokens").integer(load.kv_tokens_used);
  w.key("num_cached_tokens").integer(load.kv_tokens_cached);
  w.end_object().end_array().end_object();
  return json_response(std::move(out));
}

Reply show_load(Call call) {
  const LoadStats load = call.serving->engine.load();
  std::string out;
  JsonWriter w(out);
  w.begin_array().begin_object();
  w.key("dp_rank").integer(0);
  w.key("num_reqs").integer(load.running + load.queued);
  w.key("num_waiting_reqs").integer(load.queued);
  w.key("num_tokens").integer(load.kv_tokens_used);
  w.end_object().end_array();
  return json_response(std::move(out));
}

Reply flush_cache(Call call) {
  const LoadStats load = call.serving->engine.load();
  // It would have to wait for them, and keep everybody else waiting.
  if (load.running + load.queued > 0) {
    return error_response(
        409,
        fmt::format("the cache is dropped only while nothing runs or waits; {} run, {} wait", load.running,
                    load.queued),
        "busy");
  }
  return std::make_shared<FlushResponse>(std::move(call.serving), std::move(call.request));
}

Reply abort_requests(Call call) {
  const Result<std::vector<RequestId>> ids = requests_to_abort(*call.serving, std::move(call.request.body));
  if (!ids) return error_response(ids.status(), call.request.id);
  for (const RequestId id : *ids) call.serving->engine.abort(id);
  std::string out;
  JsonWriter(out).begin_object().key("aborted").integer(int64_t(ids->size())).end_object();
  return json_response(std::move(out));
}

}  // namespace gapless
