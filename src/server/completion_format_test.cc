// What streamed pieces of a completion add up to, whatever the engine held back, against the whole response.
#include "server/completion_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "server/json_writer.h"
#include "server/text_offsets.h"

namespace gapless {
namespace {

using nlohmann::json;

struct Answer {
  std::vector<TokenText> prompt, tokens;
  std::string prompt_text, text;
  std::vector<size_t> visible;  // bytes of the tokens' text that may be shown once token i has come
};

TokenText token(std::string bytes, bool hidden) {
  TokenText out{.id = 0, .bytes = std::move(bytes), .logprob = -1, .top = {}};
  if (hidden) out.text_begin = out.bytes.size();
  return out;
}

std::string lossy(const std::string& bytes) {
  std::string out;
  append_utf8_lossy(out, bytes);
  return out;
}

std::string text_of(const std::vector<TokenText>& tokens) {
  std::string out;
  for (const TokenText& t : tokens) out += t.text();
  return out;
}

std::vector<TokenText> random_tokens(std::mt19937& random, size_t count) {
  const char* pieces[] = {"a",    "bc",       "\xC3",     "\xA9", "\xE6\xBC",
                          "\xA2", "\xF0\x9F", "\x98\x80", "\xFF", "<s>"};
  std::vector<TokenText> tokens;
  for (size_t i = 0; i < count; i++) {
    const size_t piece = random() % 10;
    tokens.push_back(token(pieces[piece], piece == 9));
  }
  return tokens;
}

// Cut somewhere, as a stop string cuts it, and held back by up to five bytes before.
Answer random_answer(std::mt19937& random) {
  Answer a;
  a.prompt = random_tokens(random, 1 + random() % 5);
  a.tokens = random_tokens(random, 1 + random() % 8);
  a.prompt_text = lossy(text_of(a.prompt));
  const std::string all = text_of(a.tokens);
  const size_t cut = all.size() - std::min<size_t>(all.size(), random() % 6);
  a.text = lossy(all.substr(0, cut));
  size_t bytes = 0, shown = 0;
  for (const TokenText& t : a.tokens) {
    bytes += t.text().size();
    shown = std::max(shown, std::min(cut, bytes - std::min<size_t>(bytes, random() % 6)));
    a.visible.push_back(shown);
  }
  a.visible.back() = cut;
  return a;
}

PromptState prompt_state(const Answer& a) {
  PromptState state;
  state.accepted = Accepted{.prompt_ids = {}, .prompt_text = a.prompt_text, .prompt_tokens = a.prompt};
  state.scored.tokens.assign(a.prompt.begin() + 1, a.prompt.end());
  // Only the prompt as it was accepted knows what the client wrote.
  for (TokenText& t : state.scored.tokens) t.text_begin = t.bytes.size();
  return state;
}

json whole(const Answer& a, const PromptState& state) {
  std::vector<Choice> choices(1);
  choices[0].prompt = &state;
  choices[0].text = a.text;
  choices[0].tokens = a.tokens;
  choices[0].finish = Finish{FinishReason::kStop, {}, {}};
  return json::parse(CompletionFormat(true, true).whole({}, choices, {}))["choices"][0];
}

// Checks after every piece that no offset is beyond the text that has come.
json streamed(const Answer& a, const PromptState& state) {
  const CompletionFormat format(true, true);
  Choice choice;
  choice.prompt = &state;
  Utf8Stream utf8;
  const std::string bytes = text_of(a.tokens);
  json joined = {{"text", ""}, {"logprobs", json::object()}};
  size_t shown = 0;
  for (size_t i = 0; i < a.tokens.size(); i++) {
    ChoiceDelta delta{.index = 0, .text = {}, .tokens = {a.tokens[i]}, .finish = {}};
    utf8.feed(std::string_view(bytes).substr(shown, a.visible[i] - shown), delta.text);
    shown = a.visible[i];
    if (i + 1 == a.tokens.size()) {
      utf8.finish(delta.text);
      delta.finish = Finish{FinishReason::kStop, {}, {}};
    }
    std::string event;
    format.stream_delta({}, choice, delta, {}, event);
    if (event.empty()) continue;
    const json piece = json::parse(event.substr(6))["choices"][0];
    joined["text"] = joined["text"].get<std::string>() + piece["text"].get<std::string>();
    for (const auto& [key, list] : piece["logprobs"].items()) {
      for (const json& item : list) joined["logprobs"][key].push_back(item);
    }
    for (const json& offset : joined["logprobs"]["text_offset"])
      EXPECT_LE(offset.get<int64_t>(), count_characters(joined["text"].get<std::string>()));
  }
  return joined;
}

TEST(CompletionFormat, AnyAnswerHasOffsetsThatPartitionItsTextAndStreamsAlike) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 1000; round++) {
    const Answer a = random_answer(random);
    const PromptState state = prompt_state(a);
    const json expected = whole(a, state), got = streamed(a, state);
    EXPECT_EQ(expected["text"], a.prompt_text + a.text);
    EXPECT_EQ(got["text"], expected["text"]);
    EXPECT_EQ(got["logprobs"], expected["logprobs"]);
    const json& offsets = expected["logprobs"]["text_offset"];
    ASSERT_EQ(offsets.size(), a.prompt.size() + a.tokens.size());
    EXPECT_EQ(offsets[0], 0);
    EXPECT_EQ(offsets[a.prompt.size()], count_characters(a.prompt_text)) << "where the answer begins";
    for (size_t i = 0; i + 1 < offsets.size(); i++) {
      ASSERT_LE(offsets[i], offsets[i + 1]);
      const TokenText& t = i < a.prompt.size() ? a.prompt[i] : a.tokens[i - a.prompt.size()];
      if (t.text().empty()) {
        EXPECT_EQ(offsets[i], offsets[i + 1]) << "a hidden token has no width";
      }
    }
    EXPECT_LE(offsets.back(), count_characters(a.prompt_text + a.text));
  }
}

}  // namespace
}  // namespace gapless
