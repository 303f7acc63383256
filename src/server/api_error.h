// Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "base/status.h"
#include "server/http_message.h"

namespace gapless {

int http_status_of(StatusCode code);
// The JSON object. kInternal: the message is replaced by one that names `request_id`, under which the log has
// the details.
std::string error_json(const Status& status, const std::string& request_id);
// What the log says of an error: status, code, field and message, without what the message quotes of the
// client's text.
std::string error_reason(const Status& status);
// The whole response; 429 and 503 carry Retry-After. A kInternal error is logged here.
HttpResponse error_response(const Status& status, const std::string& request_id);
// An error that no StatusCode stands for (405, 408, 415, 431).
HttpResponse error_response(int http_status, const std::string& message, const std::string& error_code);

}  // namespace gapless
