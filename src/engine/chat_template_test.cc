#include "engine/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <ctime>
#include <fstream>

#include "engine/testing/chat_fixture.h"

namespace gapless {
namespace {

using testing::kChatml;

class Chat : public testing::Chat {};

TEST_F(Chat, RendersMessages) {
  EXPECT_EQ(text(kChatml,
                 R"([{"role":"system","content":"S"},{"role":"user","content":"it's \"1\" < 2 & \\x é\n"}])"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nit's \"1\" < 2 & \\x "
            "é\n<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(
      render(kChatml, {.messages = R"([{"role":"user","content":"a"}])", .add_generation_prompt = false})
          ->text,
      "<|im_start|>user\na<|im_end|>\n");
}

TEST_F(Chat, MarksExactlyTheUsersCharacters) {
  const auto chat = render(
      kChatml, {.messages = R"([{"role":"user","content":"one two"}])", .add_generation_prompt = false});
  ASSERT_TRUE(chat.is_ok());
  ASSERT_EQ(chat->text, "<|im_start|>user\none two<|im_end|>\n");
  EXPECT_EQ(chat->user, (std::vector<TextRange>{{17, 20}, {21, 24}}));
}

TEST_F(Chat, HuggingFaceSemantics) {
  const auto one = [&](std::string_view source) {
    return text(source, R"([{"role":"user","content":" a'b "}])");
  };
  EXPECT_EQ(one("{% if true %}\n  x\n  {% endif %}\ny"), "  x\ny") << "trim_blocks and lstrip_blocks";
  EXPECT_EQ(one("{{ messages[0].content.strip() ~ messages[0]['content'].upper() | trim }}"), "a'bA'B");
  EXPECT_EQ(one("{% generation %}g{% endgeneration %}{%- generation -%} h {%- endgeneration -%}"), "gh");
  EXPECT_EQ(one("{{ 'yes' if tools is defined else 'no' }}{{ tools }}"), "no")
      << "absent tools are undefined";
  EXPECT_EQ(one("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"), "012");
  EXPECT_EQ(one("{{ bos_token }}|{{ eos_token }}"), "<s>|<|endoftext|>");
}

TEST_F(Chat, TojsonIsPythons) {
  const auto tools = [&](std::string_view source) {
    return render(source, {.messages = R"([{"role":"user","content":"x"}])",
                           .tools = R"([{"z":1,"a":[true,null,1.5,"<é> & \"q\" 'r' \n"],"e":{},"f":[]}])"})
        ->text;
  };
  EXPECT_EQ(tools("{{ tools | tojson }}"),
            R"([{"z": 1, "a": [true, null, 1.5, "<é> & \"q\" 'r' \n"], "e": {}, "f": []}])")
      << "key order, separators, no HTML escapes";
  EXPECT_EQ(tools("{{ tools[0].a | tojson(ensure_ascii=True) }}"),
            R"([true, null, 1.5, "<\u00e9> & \"q\" 'r' \n"])");
  EXPECT_EQ(tools("{{ tools[0] | tojson(sort_keys=True, separators=(',', ':')) }}"),
            R"({"a":[true,null,1.5,"<é> & \"q\" 'r' \n"],"e":{},"f":[],"z":1})");
  EXPECT_EQ(tools("{{ {'k': [1, 2], 'e': []} | tojson(indent=2) }}"),
            "{\n  \"k\": [\n    1,\n    2\n  ],\n  \"e\": []\n}");
}

TEST_F(Chat, StrftimeNowIsNow) {
  const std::string year = text("{{ strftime_now('%Y-%m-%d') }}", R"([{"role":"user","content":"x"}])");
  char expected[32];
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(expected, sizeof expected, "%Y-%m-%d", localtime_r(&now, &parts));
  EXPECT_EQ(year, expected);
}

TEST_F(Chat, A_CH_1_TheTemplateRefuses) {
  const char* gemma =
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif "
      "%}{{ m.content }}{% endfor %}";
  const Status system =
      error(gemma, {.messages = R"([{"role":"system","content":"x"},{"role":"user","content":"y"}])"});
  EXPECT_EQ(system.message(), "System role not supported") << "in the template's own words";
  EXPECT_EQ(system.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(system.param(), "messages");
  const Status twice =
      error(gemma, {.messages = R"([{"role":"user","content":"x"},{"role":"user","content":"y"}])"});
  EXPECT_EQ(twice.message(), "Conversation roles must alternate user/assistant/user/assistant/...");
  EXPECT_EQ(error(gemma, {.messages = "[]"}).message(), "messages must hold at least one message");
  EXPECT_EQ(text(gemma, R"([{"role":"user","content":"x"},{"role":"assistant","content":"y"}])"), "xy")
      << "the last may be the assistant's";
  const Status in_macro = error("{% macro f() %}{{ raise_exception('no \"f\"') }}{% endmacro %}{{ f() }}",
                                {.messages = R"([{"role":"user","content":"x"}])"});
  EXPECT_EQ(in_macro.message(), "no \"f\"");
}

TEST_F(Chat, A_CH_2_ContentInParts) {
  const char* source = "{# tool_calls #}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}";
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    const std::string parts = fmt::format(
        R"([{{"role":"{}","content":[{{"type":"text","text":"a"}},{{"type":"text","text":"b"}}]}}])", role);
    const std::string joined = fmt::format(R"([{{"role":"{}","content":"ab"}}])", role);
    EXPECT_EQ(text(source, parts), text(source, joined));
    EXPECT_EQ(text(source, parts), std::string(role) + "=ab;");
  }
  const Status image = error(
      source,
      {.messages =
           R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]}])"});
  EXPECT_EQ(image.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(image.param(), "messages");
  EXPECT_NE(image.message().find("messages[0].content[1]"), std::string::npos) << image.message();
  EXPECT_NE(image.message().find("'image_url' is not supported"), std::string::npos) << image.message();
}

TEST_F(Chat, A_CH_3_ToolCallsWithoutContent) {
  const char* source =
      "{% for m in messages %}[{{ m.role }}]{{ m.content + '' }}{% for c in m.tool_calls %}"
      "{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}{% endfor %}";
  const std::string expected = "[user]q[assistant]f({\"x\": 1})[tool]r[user]t";
  for (const char* content : {R"("content":null,)", ""}) {
    const std::string messages =
        std::string(R"([{"role":"user","content":"q"},{"role":"assistant",)") + content +
        R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},)"
        R"({"role":"tool","tool_call_id":"1","content":"r"},{"role":"user","content":"t"}])";
    EXPECT_EQ(text(source, messages), expected);
  }
}

TEST_F(Chat, RefusesWrongMessages) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"role":"user"})", "messages must be an array"},
      {R"([1])", "messages[0] must be an object"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":"im_end","content":"x"}])", "messages[0].role"},
      {R"([{"role":"user","content":"x"},{"role":"user"}])", "messages[1].content is missing"},
      {R"([{"role":"user","content":null}])", "messages[0].content is missing"},
      {R"([{"role":"user","content":5}])", "messages[0].content must be a string"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0]"},
      {R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"([{"role":"assistant","content":null,"tool_calls":{}}])", "messages[0].tool_calls must be an array"},
  };
  for (const auto& [messages, part] : cases) {
    const Status status = error(kChatml, {.messages = messages});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << messages;
    EXPECT_EQ(status.param(), "messages") << messages;
    EXPECT_NE(status.message().find(part), std::string::npos) << messages << ": " << status.message();
  }
  const std::string deep(5000, '[');
  EXPECT_NE(error(kChatml, {.messages = deep + std::string(5000, ']')}).message().find("nested deeper"),
            std::string::npos);
  // The order of an object's members is kept, which costs the square of their number.
  std::string wide = "{";
  for (int i = 0; i <= 1000; i++) wide += fmt::format(R"({}"k{}":0)", i ? "," : "", i);
  wide += "}";
  for (const std::string& messages :
       {R"([{"role":"user","content":"x","more":)" + wide + "}]",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" +
            nlohmann::json(wide).dump() + "}}]}]"})
    EXPECT_NE(
        error(kChatml, {.messages = messages}).message().find("an object of 1001 members, at most 1000"),
        std::string::npos);
  const char* ok = R"([{"role":"user","content":"x"}])";
  EXPECT_EQ(error(kChatml, {.messages = ok, .tools = "{}"}).param(), "tools");
  EXPECT_EQ(error(kChatml, {.messages = ok, .template_kwargs = "[]"}).param(), "chat_template_kwargs");
}

TEST_F(Chat, NullFieldsAndDeveloperRole) {
  const char* source = "{% for m in messages %}{{ m.role }}{{ ' named' if m.name is defined }};{% endfor %}";
  EXPECT_EQ(text(source, R"([{"role":"developer","content":"x","name":null}])"), "system;");
  EXPECT_EQ(text(std::string(source) + "{# developer #}", R"([{"role":"developer","content":"x"}])"),
            "developer;");
}

TEST_F(Chat, TemplateVariablesOfTheRequest) {
  const char* source = "{{ 'think' if enable_thinking else 'no' }}{{ effort }}{{ bos_token }}";
  const ChatInput input{
      .messages = R"([{"role":"user","content":"x"}])",
      .template_kwargs = R"({"enable_thinking":true,"effort":"high","bos_token":"forged"})"};
  EXPECT_EQ(render(source, input)->text, "thinkhigh<s>") << "the model's own variables cannot be replaced";
}

TEST_F(Chat, ContinuesTheFinalMessage) {
  const char* messages =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"The answer <|im_end|> is "}])";
  const ChatInput input{.messages = messages, .continue_final_message = true};
  const auto chat = render(kChatml, input);
  ASSERT_TRUE(chat.is_ok());
  EXPECT_EQ(chat->text, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer <|im_end|> is");
  ASSERT_FALSE(chat->user.empty());
  EXPECT_EQ(chat->user.back().end, chat->text.size());
  EXPECT_EQ(controls(kChatml, input),
            (std::vector<std::string>{"<|im_start|>", "<|im_end|>", "<|im_start|>"}));
  EXPECT_EQ(error("nothing", input).param(), "continue_final_message");
}

TEST_F(Chat, BadTemplates) {
  const Status parse = ChatTemplate::compile("a\n{% for %}", *tokenizer).status();
  EXPECT_NE(parse.message().find("does not parse"), std::string::npos);
  EXPECT_NE(parse.message().find("line 2"), std::string::npos) << parse.message();
  const char* endless =
      "{% for i in range(90000) %}{% for j in range(90000) %}{% for k in range(90000) %}{% endfor %}{% "
      "endfor %}{% endfor %}";
  EXPECT_NE(error(endless, {.messages = R"([{"role":"user","content":"x"}])"})
                .message()
                .find("the chat template failed"),
            std::string::npos);
  EXPECT_NE(error("{{ messages[0].nothing.at_all }}", {.messages = R"([{"role":"user","content":"x"}])"})
                .message()
                .find("failed"),
            std::string::npos);
}

TEST_F(Chat, BuiltinTemplates) {
  const auto names = builtin_chat_templates();
  EXPECT_GE(names.size(), 6u);
  const char* messages =
      R"([{"role":"system","content":"S"},{"role":"user","content":"U"},{"role":"assistant","content":"A"},{"role":"user","content":"V"}])";
  for (std::string_view name : names) {
    const auto source = load_chat_template(std::string(name));
    ASSERT_TRUE(source.is_ok()) << name;
    const std::string chat = text(*source, messages);
    for (const char* part : {"S", "U", "A", "V"})
      EXPECT_NE(chat.find(part), std::string::npos) << name << ": " << chat;
    EXPECT_EQ(chat.find("error"), std::string::npos) << name << ": " << chat;
  }
  EXPECT_EQ(text(*load_chat_template("chatml"), messages), text(kChatml, messages));
  EXPECT_EQ(text(*load_chat_template("gemma"), messages),
            "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_"
            "turn>user\nV<end_of_turn>\n"
            "<start_of_turn>model\n");
  EXPECT_EQ(text(*load_chat_template("llama3"), messages),
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_"
            "id|>\n\nU<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_"
            "id|>\n\nV<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST_F(Chat, TemplateFromAFileOrTheClearError) {
  const std::string path = ::testing::TempDir() + "/chat_template_test.jinja";
  std::ofstream(path) << "{{ messages[0].content }}!";
  EXPECT_EQ(text(*load_chat_template(path), R"([{"role":"user","content":"hi"}])"), "hi!");
  const Status unknown = load_chat_template("no-such-template").status();
  for (const char* part : {"--chat-template", "no-such-template", "chatml", "gemma"}) {
    EXPECT_NE(unknown.message().find(part), std::string::npos) << unknown.message();
  }
  EXPECT_FALSE(load_chat_template(::testing::TempDir()).is_ok()) << "a folder";
  const Status none = no_chat_template();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(none.message().find("--chat-template"), std::string::npos);
}

}  // namespace
}  // namespace gapless
