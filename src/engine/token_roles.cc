#include "engine/token_roles.h"

#include <gapless_text.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace gapless {
namespace {

using std::string_view;

// Spellings that end a turn or a text, whatever type the file gives them: the list that llama.cpp keeps,
// because files do not say.
constexpr string_view kEndSpellings[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};
// These end an answer only if the file calls them control tokens: "</s>" is a piece of HTML in Gemma's
// vocabulary, and the rest separate files and repositories in training text.
constexpr string_view kEndControls[] = {
    "</s>",         "<eos>",         "<|fim_pad|>", "<fim-pad>", "<fim_pad>",  "<PAD>",        "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",  "<REPO>",    "<reponame>", "<|file_sep|>",
};

template <size_t N>
bool is_one_of(const string_view (&list)[N], string_view text) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

TokenType type_of(const TokenizerData& data, size_t id) {
  return data.types.empty() ? TokenType::kNormal : TokenType(data.types[id]);
}

// User-defined tokens are matched in user text too. Some files have their turn markers among them; those must
// not be.
bool looks_like_control(string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<｜") && text.ends_with("｜>")) || text == "<start_of_turn>" ||
         text == "<end_of_turn>";
}

uint8_t role_of(TokenType type, string_view text) {
  switch (type) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return GAPLESS_TEXT_CONTROL;
    case TokenType::kUserDefined:
      return looks_like_control(text) ? GAPLESS_TEXT_CONTROL : GAPLESS_TEXT_LITERAL;
    case TokenType::kUnused:
      return GAPLESS_TEXT_UNUSED;
    case TokenType::kByte:
      return GAPLESS_TEXT_BYTE;
    case TokenType::kNormal:
    case TokenType::kUndefined:
      break;
  }
  return GAPLESS_TEXT_PIECE;
}

bool hidden(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUnused;
}

bool ends_by_spelling(TokenType type, string_view text) {
  return is_one_of(kEndSpellings, text) || (type == TokenType::kControl && is_one_of(kEndControls, text));
}

// In the Harmony format and Solar's, "<|end|>" ends a message and the answer goes on; "<|return|>",
// "<|call|>", ... end the answer.
void drop_message_end(const TokenizerData& data, std::vector<int32_t>& eos_ids) {
  auto find = [&](string_view text) {
    return std::find_if(eos_ids.begin(), eos_ids.end(),
                        [&](int32_t id) { return data.tokens[size_t(id)] == text; });
  };
  const bool has_return = find("<|return|>") != eos_ids.end(), has_flush = find("<|flush|>") != eos_ids.end();
  const bool has_call = find("<|call|>") != eos_ids.end() || find("<|calls|>") != eos_ids.end();
  if (auto end = find("<|end|>"); end != eos_ids.end() && has_call && (has_return || has_flush))
    eos_ids.erase(end);
}

// Byte-level BPE writes each byte as one printable character: itself where it is printable Latin-1, else the
// next one from U+0100 on.
std::array<int16_t, 0x180> byte_level_table() {
  std::array<int16_t, 0x180> table;
  table.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[size_t(printable ? byte : next++)] = int16_t(byte);
  }
  return table;
}

// A token with a character outside the table (an added token written as plain text) is its own bytes.
std::string byte_level_bytes(string_view token) {
  static const std::array<int16_t, 0x180> kTable = byte_level_table();
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const auto lead = uint8_t(token[at]);
    unsigned code = lead;
    if (lead >= 0xC0 && lead < 0xE0 && at + 1 < token.size()) {
      code = (lead & 0x1Fu) << 6 | (uint8_t(token[at + 1]) & 0x3Fu);
      at += 2;
    } else if (lead < 0x80) {
      at += 1;
    } else {
      return std::string(token);
    }
    if (code >= kTable.size() || kTable[code] < 0) return std::string(token);
    bytes.push_back(char(kTable[code]));
  }
  return bytes;
}

std::string spm_bytes(TokenType type, string_view token) {
  if (type == TokenType::kByte && token.size() == 6) {
    uint8_t byte = 0;
    std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    return std::string(1, char(byte));
  }
  constexpr string_view kSpace = "▁";
  std::string bytes;
  for (size_t space; (space = token.find(kSpace)) != string_view::npos;) {
    bytes.append(token.substr(0, space)).push_back(' ');
    token.remove_prefix(space + kSpace.size());
  }
  return bytes.append(token);
}

}  // namespace

TokenRoles token_roles(const TokenizerData& data) {
  const size_t n = data.tokens.size();
  TokenRoles result{std::vector<uint8_t>(n), std::vector<bool>(n), {}};
  auto make_control = [&](size_t id) {
    result.roles[id] = GAPLESS_TEXT_CONTROL;
    result.control[id] = true;
  };
  for (size_t id = 0; id < n; ++id) {
    const TokenType type = type_of(data, id);
    result.roles[id] = role_of(type, data.tokens[id]);
    result.control[id] = hidden(type);
    if (ends_by_spelling(type, data.tokens[id])) {
      make_control(id);
      result.eos_ids.push_back(int32_t(id));
    }
  }
  drop_message_end(data, result.eos_ids);
  for (const auto& id : {data.eos_id, data.eot_id, data.eom_id}) {
    if (id) result.eos_ids.push_back(*id);
  }
  std::sort(result.eos_ids.begin(), result.eos_ids.end());
  result.eos_ids.erase(std::unique(result.eos_ids.begin(), result.eos_ids.end()), result.eos_ids.end());
  for (const auto& id : {data.bos_id, data.eos_id, data.eot_id, data.eom_id}) {
    if (id) make_control(size_t(*id));
  }
  return result;
}

TokenBytes token_bytes(const TokenizerData& data, std::vector<bool> control) {
  TokenBytes table;
  table.offsets.reserve(data.tokens.size() + 1);
  table.offsets.push_back(0);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = type_of(data, id);
    const bool verbatim = control[id] || type == TokenType::kUserDefined;
    if (verbatim) {
      table.bytes += data.tokens[id];
    } else {
      table.bytes +=
          data.model == "gpt2" ? byte_level_bytes(data.tokens[id]) : spm_bytes(type, data.tokens[id]);
    }
    table.offsets.push_back(uint32_t(table.bytes.size()));
  }
  table.control = std::move(control);
  return table;
}

}  // namespace gapless
