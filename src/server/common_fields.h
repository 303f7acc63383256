// The fields that chat and completions share.
#pragma once

#include <initializer_list>

#include "engine/engine_api.h"
#include "server/field_reader.h"
#include "server/generation_plan.h"

namespace gapless {

inline constexpr int32_t kMaxChoices = 128;          // n
inline constexpr size_t kMaxStopStrings = 16;        // OpenAI allows 4; clients of other servers send more
inline constexpr size_t kMaxStopStringBytes = 1024;  // each

// A name that is not the served model's is a 404, if `strict`.
void read_model(FieldReader& fields, const ModelFacts& model, bool strict);
void read_cache_salt(FieldReader& fields, GenerateRequest& request);
// model, n, stream, stream_options, and what would be wrong to ignore.
void read_common_fields(FieldReader& fields, const ModelFacts& model, const RequestLimits& limits,
                        GenerationPlan& plan);
// A string or a list of strings.
void read_stop(FieldReader& fields, const char* field, std::vector<std::string>& stop);
// How the answer is drawn and what ends it, but for its length: fields that all servers call alike.
void read_choice_fields(FieldReader& fields, const ModelFacts& model, GenerateRequest& request);
// names: of the most tokens an answer may have, the last one that is there counts.
void read_lengths(FieldReader& fields, std::initializer_list<const char*> max_names, const char* min_name,
                  int32_t min_max_tokens, GenerateRequest& request);
void read_seed(FieldReader& fields, const char* name, GenerateRequest& request);
// All of these as OpenAI calls them.
void read_sampling_fields(FieldReader& fields, const ModelFacts& model, int32_t min_max_tokens,
                          GenerateRequest& request);

}  // namespace gapless
