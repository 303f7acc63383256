#include "model/testing/tiny_vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace gapless::testing {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

constexpr const char* kText =
    "the quick brown fox jumps over the lazy dog while the river carries small boats towards the sea and "
    "people walk along "
    "its banks in the evening when the light turns golden and birds return to their nests there was once a "
    "young engineer who "
    "built machines that could think and write stories about distant worlds every morning she would open the "
    "window listen to "
    "the wind and begin again because she knew that patience and curiosity are the only tools that never "
    "break her friends "
    "asked why she spent so many hours looking at numbers and she answered that numbers are another way of "
    "seeing things that "
    "nobody else had noticed before in winter snow covered the mountains and the town became quiet children "
    "played near the "
    "old bridge and threw stones into the frozen water some of them dreamed of travelling across oceans "
    "others wanted to learn "
    "how computers work and how language models choose the next word from thousands of possible answers it "
    "takes both memory "
    "and attention to understand a question completely and it takes kindness to explain the answer well so "
    "that everyone can "
    "follow without feeling lost or left behind";

using Pair = std::pair<std::string, std::string>;

// Byte-pair merges of the text's words, most frequent pair first, ties in alphabetical order. `space` stands
// before each word.
std::vector<Pair> learn_merges(const std::string& space, size_t count) {
  std::map<std::vector<std::string>, int> words;
  std::istringstream text{kText};
  for (std::string word; text >> word;) {
    std::vector<std::string> symbols{space};
    for (const char c : word) symbols.emplace_back(1, c);
    ++words[symbols];
  }
  std::vector<Pair> merges;
  while (merges.size() < count) {
    std::map<Pair, int> pairs;
    for (const auto& [symbols, times] : words) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[{symbols[i], symbols[i + 1]}] += times;
    }
    CHECK(!pairs.empty(), "the text gives only {} merges", merges.size());
    const Pair best = std::max_element(pairs.begin(), pairs.end(), [](auto& a, auto& b) {
                        return a.second < b.second;
                      })->first;
    merges.push_back(best);
    std::map<std::vector<std::string>, int> merged;
    for (const auto& [symbols, times] : words) {
      std::vector<std::string> next;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool hit = i + 1 < symbols.size() && symbols[i] == best.first && symbols[i + 1] == best.second;
        next.push_back(hit ? symbols[i] + symbols[i + 1] : symbols[i]);
        i += hit;
      }
      merged[next] += times;
    }
    words = std::move(merged);
  }
  return merges;
}

std::string utf8(uint32_t code) {
  if (code < 0x80) return {char(code)};
  CHECK_LT(code, 0x800u);
  return {char(0xc0 | code >> 6), char(0x80 | (code & 0x3f))};
}

// The printable character that stands for a byte in GPT-2's vocabularies: itself if printable in Latin-1,
// else the next free one from U+0100 on.
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    symbols.push_back(utf8(printable ? b : next++));
  }
  return symbols;
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

void add_tiny_bpe_vocab(GgufWriter& writer, int32_t size) {
  CHECK_GE(size, 259);
  std::vector<std::string> tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), kControl);
  const std::vector<std::string> bytes = byte_symbols();
  tokens.insert(tokens.end(), bytes.begin(), bytes.end());
  std::vector<std::string> merges;
  for (const auto& [left, right] : learn_merges(bytes[' '], size_t(size) - tokens.size())) {
    merges.push_back(left + " " + right);
    tokens.push_back(left + right);
  }
  types.resize(tokens.size(), kNormal);
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "smollm");
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  writer.add_i32s("tokenizer.ggml.token_type", types);
  writer.add_strings("tokenizer.ggml.merges", merges);
  writer.add_u32("tokenizer.ggml.bos_token_id", 1);
  writer.add_u32("tokenizer.ggml.eos_token_id", 2);
  writer.add_u32("tokenizer.ggml.unknown_token_id", 0);
  writer.add_u32("tokenizer.ggml.padding_token_id", 2);
  writer.add_bool("tokenizer.ggml.add_space_prefix", false);
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  writer.add_string("tokenizer.chat_template", kChatMl);
}

void add_tiny_spm_vocab(GgufWriter& writer, int32_t size) {
  CHECK_GE(size, 358);
  const std::string space = "\u2581";
  std::vector<std::string> tokens{"<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"};
  std::vector<int32_t> types{kControl, kControl, kControl, kUnknown, kControl, kControl};
  std::vector<float> scores(tokens.size(), -1000);
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(fmt::format("<0x{:02X}>", b));
    types.push_back(kByte);
    scores.push_back(-1000);
  }
  std::vector<std::string> characters{space, "\n"};
  for (char c = 0x21; c < 0x7f; ++c) characters.emplace_back(1, c);
  const size_t n_merges = size_t(size) - tokens.size() - characters.size();
  tokens.insert(tokens.end(), characters.begin(), characters.end());
  scores.resize(tokens.size(), -500);
  float score = 0;
  for (const auto& [left, right] : learn_merges(space, n_merges)) {
    tokens.push_back(left + right);
    scores.push_back(score--);
  }
  types.resize(tokens.size(), kNormal);
  writer.add_string("tokenizer.ggml.model", "llama");
  writer.add_string("tokenizer.ggml.pre", "default");
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  writer.add_f32s("tokenizer.ggml.scores", scores);
  writer.add_i32s("tokenizer.ggml.token_type", types);
  writer.add_u32("tokenizer.ggml.bos_token_id", 2);
  writer.add_u32("tokenizer.ggml.eos_token_id", 1);
  writer.add_u32("tokenizer.ggml.unknown_token_id", 3);
  writer.add_u32("tokenizer.ggml.padding_token_id", 0);
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  writer.add_bool("tokenizer.ggml.add_eos_token", false);
  writer.add_bool("tokenizer.ggml.add_space_prefix", false);
}

}  // namespace gapless::testing
