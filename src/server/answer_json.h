// Parts that the chat and completion formats share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/answer.h"
#include "server/json_writer.h"

namespace gapless {

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":... without the closing brace.
void begin_answer(JsonWriter& w, const AnswerHeader& header, const char* object);
void write_usage(JsonWriter& w, const Usage& usage);
void write_chunk_usage(JsonWriter& w, const ChunkUsage& usage);
// "token_ids": [...]; "prompt_token_ids": [...].
void write_token_ids(JsonWriter& w, std::span<const TokenText> tokens);
void write_prompt_token_ids(JsonWriter& w, const PromptState& prompt);
// "finish_reason": the reason, or null; for a choice that failed among others also "error".
void write_finish(JsonWriter& w, const std::optional<Finish>& finish, const std::string& request_id);
// "error": why a choice failed, as in an error response.
void write_error(JsonWriter& w, const Status& status, const std::string& request_id);
// A token for display where text is expected: invalid UTF-8 as U+FFFD.
std::string token_text(const TokenText& token);
// The last chunk before [DONE] with include_usage: no choices.
void append_usage_event(std::string& out, const AnswerHeader& header, const char* object, const Usage& usage);
// data: {"error": ...}
void append_error_event(std::string& out, const Status& status, const std::string& request_id);

inline constexpr std::string_view kSseData = "data: ", kSseEnd = "\n\n", kSseDone = "data: [DONE]\n\n",
                                  kSseComment = ": keep-alive\n\n";

}  // namespace gapless
