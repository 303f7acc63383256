// Tools in chats: what templates that know nothing of them are told, and which format a template shows.
#include "engine/tool_prompt.h"

#include <gtest/gtest.h>

#include "engine/testing/chat_fixture.h"

namespace gapless {
namespace {

using testing::kChatml;

class ToolPrompt : public testing::Chat {};

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","z":1,"a":2}}}])";

TEST_F(ToolPrompt, ToolsAreDescribedWhereTheTemplateCannot) {
  const auto chat = render(kChatml, {.messages = R"([{"role":"user","content":"q"}])", .tools = kTools});
  ASSERT_TRUE(chat.is_ok()) << chat.status().message();
  EXPECT_TRUE(chat->text.starts_with("<|im_start|>system\nYou can call these functions")) << chat->text;
  EXPECT_NE(chat->text.find(R"(<tools>
{"type":"function","function":{"name":"add","parameters":{"type":"object","z":1,"a":2}}}
</tools>)"),
            std::string::npos)
      << "keys in the client's order: " << chat->text;
  EXPECT_NE(chat->text.find("<tool_call>\n{\"name\": <name of the function>, \"arguments\": "),
            std::string::npos);
  EXPECT_NE(chat->text.find("<|im_end|>\n<|im_start|>user\nq<|im_end|>"), std::string::npos);
  const auto own = render(
      kChatml,
      {.messages = R"([{"role":"system","content":"S"},{"role":"user","content":"q"}])", .tools = kTools});
  EXPECT_TRUE(own->text.starts_with("<|im_start|>system\nS\n\nYou can call these functions")) << own->text;
  EXPECT_EQ(own->text.find("system", own->text.find("S\n")), std::string::npos) << "one system message";
}

TEST_F(ToolPrompt, A_CH_3_CallsAndResultsAreSpelledOutWhereTheTemplateCannot) {
  EXPECT_EQ(text(kChatml,
                 R"([{"role":"user","content":"q"},
               {"role":"assistant","content":null,"tool_calls":[
                  {"id":"1","type":"function","function":{"name":"add","arguments":"{\"b\":1,\"a\":[2]}"}},
                  {"id":"2","type":"function","function":{"name":"now"}}]},
               {"role":"tool","tool_call_id":"1","content":"3"},
               {"role":"tool","tool_call_id":"2","content":"noon"}])"),
            "<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
            "{\"b\":1,\"a\":[2]}}\n</tool_call>\n\n"
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\nnoon\n</"
            "tool_response><|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST_F(ToolPrompt, ATemplateThatKnowsToolsIsLeftAlone) {
  const char* source =
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
      "{% endfor %};{% endfor %}{{ tools[0].function.name }}";
  EXPECT_EQ(render(source, {.messages = R"([{"role":"user","content":"q"},
              {"role":"assistant","tool_calls":[{"function":{"name":"f"}}]},{"role":"tool","content":"r"}])",
                            .tools = kTools})
                ->text,
            "user:q;assistant:f;tool:r;add");
}

TEST_F(ToolPrompt, IdsHaveTheLengthThatATemplateInsistsOn) {
  const char* source =
      "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('9!') "
      "}}{% endif %}"
      "{{ c.id }}={% endfor %}{{ m.tool_call_id }}{% endfor %}";
  const std::string ids =
      text(source, R"([{"role":"assistant","tool_calls":[{"id":"call_1_0","function":{"name":"f"}}]},
                                           {"role":"tool","tool_call_id":"call_1_0","content":"r"}])");
  ASSERT_EQ(ids.size(), 19u) << ids;
  EXPECT_EQ(ids.substr(0, 9), ids.substr(10)) << "the result's is the call's";
}

TEST(ToolFormat, IsTheOneThatTheTemplateShows) {
  EXPECT_EQ(tool_format_of("a template").name, "hermes");
  EXPECT_EQ(tool_format_of("<tool_call>").name, "hermes");
  EXPECT_EQ(tool_format_of("'<|python_tag|>' + x").name, "llama3");
  EXPECT_EQ(tool_format_of("\"parameters\": dictionary of argument name and its value}").name, "llama3");
  EXPECT_EQ(tool_format_of("{{ '[TOOL_CALLS] [' }}").name, "mistral");
}

}  // namespace
}  // namespace gapless
