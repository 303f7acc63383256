#include "server/endpoints.h"

#include <charconv>
#include <limits>

#include "base/log.h"
#include "base/process_metrics.h"
#include "server/api_error.h"
#include "server/field_reader.h"
#include "server/json_writer.h"
#include "server/later_response.h"

namespace gapless {

namespace {

void write_model(JsonWriter& w, const ModelFacts& model) {
  w.begin_object();
  w.key("id").string(model.id);
  w.key("object").string("model");
  w.key("created").integer(model.created);
  w.key("owned_by").string("gapless");
  w.key("max_model_len").integer(model.context_length);
  w.key("meta").begin_object();
  w.key("architecture").string(model.architecture);
  w.key("name").string(model.name);
  w.key("quantisation").string(model.quantisation);
  w.key("n_params").integer(model.n_params);
  w.key("size").integer(model.file_bytes);
  w.key("n_vocab").integer(model.vocab_size);
  w.key("n_ctx_train").integer(model.trained_context_length);
  w.end_object().end_object();
}

Result<std::string> tokenize_body(const Serving& serving, std::string text) {
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(text)));
  FieldReader fields(body.root());
  std::string content;
  bool add_special = false, parse_special = true;
  const char* field = fields.find("content") ? "content" : "prompt";
  if (!fields.find(field)) fields.fail("content", "content is missing: the text to tokenize");
  fields.string(field, content);
  fields.boolean("add_special_tokens", add_special);  // vLLM's name for it
  fields.boolean("add_special", add_special);
  fields.boolean("parse_special", parse_special);
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   serving.engine.tokenize(content, add_special, parse_special));
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("tokens").begin_array();
  for (const int32_t id : ids) w.integer(id);
  w.end_array();
  w.key("count").integer(int64_t(ids.size()));
  w.key("max_model_len").integer(serving.engine.model().context_length);
  w.end_object();
  return out;
}

Result<std::string> detokenize_body(const Serving& serving, std::string text) {
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(text)));
  FieldReader fields(body.root());
  std::vector<int32_t> ids;
  bool skip_special = false;
  if (!fields.find("tokens")) fields.fail("tokens", "tokens is missing: a list of token ids");
  fields.integers("tokens", 0, serving.engine.model().vocab_size - 1, kMaxJsonValues, ids);
  fields.boolean("skip_special_tokens", skip_special);
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(const std::string content, serving.engine.detokenize(ids, skip_special));
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("content").string(content).key("prompt").string(content).end_object();
  return out;
}

std::string loop_json(EventLoop loop) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("loop").string(event_loop_name(loop)).end_object();
  return out;
}

constexpr size_t kMaxLoopBody = 1024;

Result<EventLoop> wanted_loop(std::string text) {
  if (text.size() > kMaxLoopBody) return Status::invalid("the body has more than {} bytes", kMaxLoopBody);
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(text)));
  FieldReader fields(body.root());
  std::string loop;
  if (!fields.find("loop")) fields.fail("loop", "loop is missing: 'overlap' or 'normal'");
  fields.string("loop", loop);
  RETURN_IF_ERROR(fields.status());
  for (EventLoop to : {EventLoop::kNormal, EventLoop::kOverlap})
    if (loop == event_loop_name(to)) return to;
  return Status::invalid("loop is '{}'; there are 'overlap' and 'normal'", printable(loop))
      .with_param("loop");
}

// Answered by the scheduler, when the steps in flight have ended: no thread waits for that.
class LoopSwitch final : public LaterResponse, public std::enable_shared_from_this<LoopSwitch> {
 public:
  using LaterResponse::LaterResponse;
  void start(std::function<void()> wake) override {
    const Result<EventLoop> to = wanted_loop(std::move(request_.body));
    if (!to) return finish(to.status());
    auto switched = [self = shared_from_this(), to = *to, wake = std::move(wake)] {
      spdlog::info("loop: {}", event_loop_name(to));
      self->finish(loop_json(to));
      wake();
    };
    if (!serving_->engine.switch_loop(*to, std::move(switched)))
      finish(Status(StatusCode::kUnavailable, "the server is shutting down"));
  }
};

// What /trace was asked for, as the clock's earliest time.
Result<double> trace_start(const std::string& query) {
  constexpr std::string_view kName = "seconds=";
  if (query.empty()) return -std::numeric_limits<double>::infinity();
  double seconds = 0;
  const char* const end = query.data() + query.size();
  const bool ok = query.starts_with(kName) && query.size() > kName.size() &&
                  std::from_chars(query.data() + kName.size(), end, seconds).ptr == end;
  if (ok && seconds > 0) return steady_seconds() - seconds;
  return Status::invalid("/trace takes seconds=N, a number above 0; it was asked for '{}'", printable(query))
      .with_param("seconds");
}

}  // namespace

Reply list_models(Call call) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("object").string("list").key("data").begin_array();
  write_model(w, call.serving->engine.model());
  w.end_array().end_object();
  return json_response(std::move(out));
}

Reply show_tokenizer_info(Call call) {
  const ModelFacts& model = call.serving->engine.model();
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  w.key("model_max_length").integer(model.context_length);
  w.key("bos_token").string_or_null(model.bos_token);
  w.key("eos_token").string_or_null(model.eos_token);
  w.key("pad_token").null();
  w.key("chat_template").string_or_null(model.chat_template);
  w.end_object();
  return json_response(std::move(out));
}

Reply show_model(Call call) {
  const ModelFacts& model = call.serving->engine.model();
  const std::string name = call.request.path.substr(call.request.path.find("/models/") + 8);
  if (name != model.id) {
    return error_response(Status(StatusCode::kNotFound,
                                 fmt::format("the model '{}' does not exist here; this server serves '{}'",
                                             printable(name), model.id))
                              .with_param("model")
                              .with_error_code("model_not_found"),
                          call.request.id);
  }
  std::string out;
  JsonWriter w(out);
  write_model(w, model);
  return json_response(std::move(out));
}

Reply show_health(Call) {
  return json_response(R"({"status":"ok"})");
}

Reply show_ready(Call call) {
  Status status(StatusCode::kUnavailable, "the model is still loading");
  if (call.serving) status = call.serving->engine.ready();
  if (call.draining) status = Status(StatusCode::kUnavailable, "the server is shutting down");
  if (status.is_ok()) return json_response(R"({"status":"ready"})");
  return error_response(Status(StatusCode::kUnavailable, status.message()), call.request.id);
}

Reply show_metrics(Call call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = call.serving->engine.metrics().prometheus_text() + process_metrics_text();
  return response;
}

Reply show_loop(Call call) {
  return json_response(loop_json(call.serving->engine.event_loop()));
}

Reply show_profile(Call call) {
  const std::string& query = call.request.query;
  const bool text = query == "format=text";
  if (!text && !query.empty() && query != "format=json")
    return error_response(
        Status::invalid("/profile takes format=text or format=json; it was asked for '{}'", printable(query))
            .with_param("format"),
        call.request.id);
  const Result<ProfileReport> report = call.serving->engine.profile();
  if (!report) return error_response(report.status(), call.request.id);
  HttpResponse response = json_response(text ? report->text : report->json);
  if (text) response.content_type = "text/plain; charset=utf-8";
  return response;
}

Reply reset_profile(Call call) {
  EngineApi& engine = call.serving->engine;
  if (const Result<ProfileReport> report = engine.profile(); !report)
    return error_response(report.status(), call.request.id);
  engine.reset_profile();
  return json_response(R"({"profile":"reset"})");
}

Reply show_trace(Call call) {
  auto job = [query = call.request.query](const Serving& served, const std::string&) -> Result<std::string> {
    ASSIGN_OR_RETURN(const double since, trace_start(query));
    return served.engine.tracer().chrome_json(since);
  };
  return std::make_shared<PoolResponse>(std::move(call.serving), std::move(call.request), std::move(job));
}

Reply switch_loop(Call call) {
  return std::make_shared<LoopSwitch>(std::move(call.serving), std::move(call.request));
}

Reply tokenize(Call call) {
  return std::make_shared<PoolResponse>(std::move(call.serving), std::move(call.request), tokenize_body);
}

Reply detokenize(Call call) {
  return std::make_shared<PoolResponse>(std::move(call.serving), std::move(call.request), detokenize_body);
}

}  // namespace gapless
