// Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}; and as Anthropic's
// do, below /v1/messages.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http_message.h"

namespace gapless {

int http_status_of(StatusCode code);
// What a client is told. kInternal: a message that names `request_id`, under which the log has the details;
// it is logged here.
std::string public_message(const Status& status, const std::string& request_id);
// The JSON object, with the public message.
std::string error_json(const Status& status, const std::string& request_id);
// Anthropic's: {"type": "error", "error": {"type", "message"}, "request_id"}.
std::string messages_error_json(int http_status, std::string_view message, const std::string& request_id);
// What the log says of an error: status, code, field and message, without what the message quotes of the
// client's text.
std::string error_reason(const Status& status);
// The whole response; 429 and 503 carry Retry-After. A kInternal error is logged here.
HttpResponse error_response(const Status& status, const std::string& request_id);
// An error that no StatusCode stands for (405, 408, 415, 431).
HttpResponse error_response(int http_status, const std::string& message, const std::string& error_code);

}  // namespace gapless
