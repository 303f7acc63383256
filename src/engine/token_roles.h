// What each token of a vocabulary is for, from its GGUF type and, where converters are known to get types
// wrong, its spelling.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tokenizer.h"

namespace gapless {

struct TokenRoles {
  std::vector<uint8_t> roles;    // gapless_text_role of each token: what text may become it
  std::vector<bool> control;     // not part of an answer's text
  std::vector<int32_t> eos_ids;  // end an answer; ascending
};

// `data` has been checked: types as long as tokens (or empty), ids in the vocabulary.
TokenRoles token_roles(const TokenizerData& data);

// The bytes each token stands for in an answer.
TokenBytes token_bytes(const TokenizerData& data, std::vector<bool> control);

}  // namespace gapless
