// A chat rendered for a small vocabulary written by hand.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template.h"
#include "engine/testing/hand_vocab.h"

namespace gapless::testing {

inline constexpr const char* kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

class Chat : public ::testing::Test {
 protected:
  Chat() {
    TokenizerData data = vocab.data();
    data.bos_id = vocab.id("<s>");
    data.eos_id = vocab.id("<|endoftext|>");
    tokenizer.emplace(Tokenizer::create(data).value());
  }

  Result<MarkedText> render(std::string_view source, const ChatInput& input) {
    auto chat_template = ChatTemplate::compile(source, *tokenizer);
    if (!chat_template) return chat_template.status();
    return chat_template->render(input);
  }
  std::string text(std::string_view source, std::string_view messages) {
    const auto chat = render(source, {.messages = messages});
    return chat.is_ok() ? chat->text : "error: " + chat.status().message();
  }
  Status error(std::string_view source, const ChatInput& input) { return render(source, input).status(); }

  // The control tokens of the chat as the model gets it, by spelling.
  std::vector<std::string> controls(std::string_view source, const ChatInput& input) {
    const auto chat = render(source, input);
    if (!chat) return {"error: " + chat.status().message()};
    const std::vector<int32_t> ids = *tokenizer->encode_chat(*chat);
    EXPECT_EQ(tokenizer->decode(ids, false), chat->text) << "no character is changed";
    std::vector<std::string> spellings;
    for (int32_t id : ids) {
      if (tokenizer->is_control(id)) spellings.emplace_back(tokenizer->token_bytes().of(id));
    }
    return spellings;
  }

  HandVocab vocab = byte_level_vocab();
  std::optional<Tokenizer> tokenizer;
};

}  // namespace gapless::testing
