// llama.cpp's grammars (GBNF, rules written with ::=) in the dialect of Lark that llguidance reads.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace gapless {

// Accepts literals, character classes, `.`, groups, alternatives, `* + ? {m,n}` and comments; the answer
// begins at the rule `root`. A newline is a space: a rule ends where the next begins. An error says the line
// and what was expected. Linear in the text; any thread.
Result<std::string> lark_of_gbnf(std::string_view gbnf);

}  // namespace gapless
