// The raw bytes of every token, loaded once with the vocabulary. Immutable; any thread.
// The text of an answer is the concatenation of its tokens' bytes, control tokens left out unless the request
// wants them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gapless {

struct TokenBytes {
  std::string bytes;              // all tokens behind one another
  std::vector<uint32_t> offsets;  // vocab_size + 1
  std::vector<bool> control;      // control tokens (BOS, <|im_end|>, ...)

  int32_t size() const { return int32_t(control.size()); }
  std::string_view of(int32_t id) const {
    return std::string_view(bytes).substr(offsets[id], offsets[id + 1] - offsets[id]);
  }
  // What the token adds to the text of an answer.
  std::string_view text_of(int32_t id, bool skip_special) const {
    return skip_special && control[id] ? std::string_view() : of(id);
  }
};

}  // namespace gapless
