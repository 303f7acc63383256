// Prompts as they are written outside of chats: one field with four shapes.
#pragma once

#include <vector>

#include "engine/engine_api.h"
#include "server/field_reader.h"

namespace gapless {

inline constexpr size_t kMaxPrompts = 1024;  // of a request that generates

// A string, a list of at most max_prompts strings, token ids, or a list of lists of token ids; and
// add_special_tokens, which says whether texts get a BOS. Control tokens spelled in a text are control
// tokens.
std::vector<Prompt> read_prompts(FieldReader& fields, const char* field, size_t max_prompts,
                                 int32_t vocab_size);
// Prompts x n of one request: what is too many is an error of `field`, which gave n.
void limit_answers(FieldReader& fields, size_t prompts, int32_t n, const char* field);

}  // namespace gapless
