// The fields that limit an answer to a language: OpenAI's response_format and what other servers call it.
#pragma once

#include <functional>
#include <string>

#include "engine/engine_api.h"
#include "server/field_reader.h"

namespace gapless {

// The JSON text of a member of the object that `fields` reads, as the client wrote it: an answer has its
// properties in the schema's order.
using RawMember = std::function<std::string(const std::string& field)>;

// Sets request.grammar and grammar_field where the object has one of the fields; two of them are an error.
// Only the shape is checked here: what the text means is the engine's, on the text pool.
void read_grammar(FieldReader& fields, const RawMember& raw, GenerateRequest& request);
// For an endpoint that calls its own field otherwise: these would be ignored, and free text would look as if
// it had been limited. `instead`: the field to use.
void refuse_grammar_fields(FieldReader& fields, const std::string& instead);

}  // namespace gapless
