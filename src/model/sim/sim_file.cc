#include "model/sim/sim_file.h"

#include <string>
#include <string_view>

#include "model/common_words.h"
#include "model/gguf_writer.h"

namespace gapless {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr const char* kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A word of syllables, different for each number.
std::string invented_word(int32_t number) {
  constexpr std::string_view kOnsets = "bdfgklmnprstvz", kVowels = "aeiou";
  std::string word;
  for (++number; number > 0; number /= int32_t(kOnsets.size() * kVowels.size())) {
    word += kOnsets[size_t(number) % kOnsets.size()];
    word += kVowels[size_t(number) / kOnsets.size() % kVowels.size()];
  }
  return word + "x";  // no English word, no prefix of one
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  void add(std::string token, TokenType type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
  }
};

Vocabulary vocabulary(int32_t size) {
  Vocabulary v;
  v.add("<unk>", kUnknown);
  v.add("<|im_start|>", kControl);
  v.add("<|im_end|>", kControl);
  v.add("<|endoftext|>", kControl);
  v.add("\n", kNormal);
  v.add("\u2581", kNormal);  // a space
  for (char c = '!'; c <= '~'; ++c) v.add({c}, kNormal);
  for (size_t i = 0; int32_t(v.tokens.size()) < size; ++i)
    v.add(" " + (i < std::size(kCommonWords) ? std::string(kCommonWords[i]) : invented_word(int32_t(i))),
          kUserDefined);
  return v;
}

}  // namespace

std::vector<std::byte> sim_model_file(const SimProfile& profile) {
  const Vocabulary v = vocabulary(profile.model.vocab_size);
  GgufWriter writer;
  writer.add_string("general.architecture", kSimArchitecture);
  writer.add_string("general.name", profile.name);
  writer.add_string("sim.profile", profile.name);
  writer.add_string("tokenizer.ggml.model", "llama");
  writer.add_strings("tokenizer.ggml.tokens", v.tokens);
  writer.add_i32s("tokenizer.ggml.token_type", v.types);
  writer.add_f32s("tokenizer.ggml.scores", std::vector<float>(v.tokens.size()));
  writer.add_u32("tokenizer.ggml.unknown_token_id", kSimUnknown);
  writer.add_u32("tokenizer.ggml.bos_token_id", kSimTurnBegin);
  writer.add_u32("tokenizer.ggml.eos_token_id", kSimTurnEnd);
  writer.add_u32("tokenizer.ggml.eot_token_id", kSimEndOfText);
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  writer.add_bool("tokenizer.ggml.add_space_prefix", false);
  writer.add_string("tokenizer.chat_template", kTemplate);
  return writer.finish();
}

}  // namespace gapless
