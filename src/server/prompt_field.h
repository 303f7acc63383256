// The prompts of /v1/completions and the input of /v1/embeddings: one field with four shapes.
#pragma once

#include <vector>

#include "engine/engine_api.h"
#include "server/field_reader.h"

namespace gapless {

// A string, a list of at most max_prompts strings, token ids, or a list of lists of token ids; and
// add_special_tokens, which says whether texts get a BOS. Control tokens spelled in a text are control
// tokens.
std::vector<Prompt> read_prompts(FieldReader& fields, const char* field, size_t max_prompts,
                                 int32_t vocab_size);

}  // namespace gapless
