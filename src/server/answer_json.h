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
// The same where calls may have come: a choice that ended by itself, and called functions, has "tool_calls".
// A stop string may have cut a call: then it is "stop".
void write_finish(JsonWriter& w, const std::optional<Finish>& finish, bool called,
                  const std::string& request_id);
// "error": why a choice failed, as in an error response.
void write_error(JsonWriter& w, const Status& status, const std::string& request_id);
// The parts of a chat's delta; with its finish come those that were held back. Opens choice.parser.
std::vector<AnswerPart> answer_parts(const AnswerSyntax& syntax, Choice& choice, const ChoiceDelta& delta);
// The parts of a chat's answer that was not streamed.
AnswerParts answer_parts(const AnswerSyntax& syntax, const Choice& choice);
// Unique among the calls of all answers.
std::string call_id(const AnswerHeader& header, const Choice& choice, int32_t call);
// A token for display where text is expected: invalid UTF-8 as U+FFFD.
std::string token_text(const TokenText& token);

inline constexpr std::string_view kSseData = "data: ", kSseEnd = "\n\n", kSseDone = "data: [DONE]\n\n",
                                  kSseComment = ": keep-alive\n\n";

}  // namespace gapless
