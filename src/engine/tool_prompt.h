// Tools in messages, for templates that need help. Those that know nothing of tools are told the tools, calls
// and results of a chat in plain messages, in the default format (tool_format.h).
#pragma once

#include <nlohmann/json.hpp>

namespace gapless {

// Adds what the tools are and how to call them to the system message, or makes one. tools: an array, not
// empty.
void describe_tools(const nlohmann::ordered_json& tools, nlohmann::ordered_json& messages);
// Calls of earlier answers become their text; a tool's result is told by the user. Results that follow each
// other are one message. messages: normalised.
void spell_out_calls(nlohmann::ordered_json& messages);
// For templates that take no other ids of calls (Mistral's): nine digits made of each id. messages:
// normalised.
void shorten_call_ids(nlohmann::ordered_json& messages);

}  // namespace gapless
