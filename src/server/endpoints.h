// The endpoints that do not generate.
#pragma once

#include <memory>

#include "server/http_message.h"
#include "server/serving.h"

namespace gapless {

HttpResponse json_response(std::string body);
// GET / : what can be called here.
HttpResponse describe_endpoints();
HttpResponse list_models(const ModelFacts& model);
// GET /v1/models/{name}
HttpResponse show_model(const ModelFacts& model, const std::string& name, const std::string& request_id);
HttpResponse show_metrics(EngineApi& engine);
// GET /trace[?seconds=N] : Chrome's trace format, of the last N seconds or of all that is kept. On the text
// pool.
HttpResponse show_profile(const EngineApi& engine, const HttpRequest& request);
HttpResponse reset_profile(EngineApi& engine, const HttpRequest& request);
std::shared_ptr<PendingResponse> show_trace(std::shared_ptr<Serving> serving, HttpRequest request);
// GET /scheduler/loop -> {"loop": the one that runs}
HttpResponse show_loop(const EngineApi& engine);
// POST /scheduler/loop {"loop": "overlap" or "normal"} -> the same, once the loop has been switched.
std::shared_ptr<PendingResponse> switch_loop(std::shared_ptr<Serving> serving, HttpRequest request);
// POST /tokenize {"content" or "prompt", "add_special", "parse_special"} -> {"tokens": [ids]}. On the text
// pool.
std::shared_ptr<PendingResponse> tokenize(std::shared_ptr<Serving> serving, HttpRequest request);
// POST /detokenize {"tokens": [ids], "skip_special_tokens"} -> {"content": text}. On the text pool.
std::shared_ptr<PendingResponse> detokenize(std::shared_ptr<Serving> serving, HttpRequest request);

}  // namespace gapless
