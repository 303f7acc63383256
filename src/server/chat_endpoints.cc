#include "server/chat_endpoints.h"

#include "server/json_writer.h"
#include "server/later_response.h"
#include "server/messages_request.h"

namespace gapless {

namespace {

// The chat that `parser` finds in the body, as the model reads it.
Result<RenderedChat> rendered(const Serving& serving, const PlanParser& parser, std::string text) {
  ASSIGN_OR_RETURN(const JsonBody body, JsonBody::parse(std::move(text)));
  ASSIGN_OR_RETURN(const GenerationPlan plan, parser(body, serving.engine.model(), serving.limits));
  return serving.engine.render_chat(std::get<ChatPrompt>(plan.requests.front().prompt));
}

Result<std::string> prompt_body(const Serving& serving, std::string text) {
  ASSIGN_OR_RETURN(const RenderedChat chat, rendered(serving, parse_chat_request, std::move(text)));
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("prompt").string(chat.text).end_object();
  return out;
}

Result<std::string> count_body(const Serving& serving, std::string text) {
  ASSIGN_OR_RETURN(const RenderedChat chat, rendered(serving, parse_count_tokens, std::move(text)));
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("input_tokens").integer(static_cast<int64_t>(chat.ids.size())).end_object();
  return out;
}

}  // namespace

Reply apply_template(Call call) {
  return std::make_shared<PoolResponse>(std::move(call.serving), std::move(call.request), prompt_body);
}

Reply count_tokens(Call call) {
  return std::make_shared<PoolResponse>(std::move(call.serving), std::move(call.request), count_body);
}

}  // namespace gapless
