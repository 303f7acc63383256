// What an answer's text is taken apart into, whole and in any pieces.
#include "server/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace gapless {
namespace {

const ToolFormat& format(std::string_view name) {
  const auto formats = tool_formats();
  return *std::find_if(formats.begin(), formats.end(), [&](const ToolFormat& f) { return f.name == name; });
}

AnswerSyntax tools(std::string_view name = "hermes") {
  return {.tools = &format(name), .functions = {"add", "get_weather"}};
}

std::string shown(const AnswerParts& parts) {
  std::string out = parts.reasoning.empty() ? "" : "think(" + parts.reasoning + ")";
  out += parts.content;
  for (const ToolCall& call : parts.calls) out += "|" + call.name + call.arguments;
  return out;
}
std::string parse(const AnswerSyntax& syntax, std::string_view text, bool in_reasoning = false) {
  return shown(parse_answer(syntax, in_reasoning, text));
}

// The same from pieces, as a client joins them.
std::string parse_pieces(const AnswerSyntax& syntax, std::string_view text, bool in_reasoning,
                         std::mt19937& random) {
  AnswerParser parser(syntax, in_reasoning);
  std::vector<AnswerPart> parts;
  const size_t longest = 1 + random() % 12;
  while (!text.empty()) {
    const size_t bytes = std::min<size_t>(text.size(), 1 + random() % longest);
    parser.feed(text.substr(0, bytes), parts);
    text.remove_prefix(bytes);
  }
  parser.finish(parts);
  AnswerParts joined;
  for (const AnswerPart& part : parts) {
    EXPECT_FALSE(part.text.empty());
    if (part.kind == AnswerPart::Kind::kReasoning) joined.reasoning += part.text;
    if (part.kind == AnswerPart::Kind::kContent) joined.content += part.text;
    if (part.kind == AnswerPart::Kind::kCallBegin) {
      EXPECT_EQ(part.call, int(joined.calls.size())) << "A-TL-1: an index of its own, and one name";
      joined.calls.push_back({part.text, ""});
    }
    if (part.kind == AnswerPart::Kind::kCallArguments) {
      EXPECT_EQ(part.call, int(joined.calls.size()) - 1);
      joined.calls.back().arguments += part.text;
    }
  }
  return shown(joined);
}

TEST(AnswerParser, PlainTextIsUntouched) {
  for (const char* text : {"", " ", "hi", " a\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n",
                           "<think>x</think>"})
    EXPECT_EQ(parse({}, text), text);
}

TEST(AnswerParser, CallsOfEveryFormat) {
  const std::string one = R"({"name": "add", "arguments": {"a": 1, "b": "}</tool_call>"}})";
  const std::string call = R"(|add{"a": 1, "b": "}</tool_call>"})";
  EXPECT_EQ(parse(tools(), "<tool_call>\n" + one + "\n</tool_call>"), call);
  EXPECT_EQ(parse(tools(),
                  "I add.\n\n<tool_call>" + one + "</tool_call>\n<tool_call>\n" + one + "\n</tool_call>\n"),
            "I add." + call + call);
  EXPECT_EQ(parse(tools(), "<tool_call>[" + one + ", " + one + "]</tool_call> done"), "done" + call + call);
  EXPECT_EQ(
      parse(tools("llama3"), R"({"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {}})"),
      R"(|add{"a": 1}|add{})");
  EXPECT_EQ(
      parse(tools("llama3"), R"(<|python_tag|>{"type": "function", "name": "add", "parameters": {"a": 1}})"),
      R"(|add{"a": 1})");
  EXPECT_EQ(parse(tools("mistral"), "[TOOL_CALLS] [" + one + "]"), call);
  EXPECT_EQ(parse(tools("mistral"), " [" + one + ", " + one + "]"), call + call)
      << "the marker is a control token";
  EXPECT_EQ(parse(tools(), one), call) << "the model forgot the tags";
  EXPECT_EQ(parse(tools(),
                  R"(<tool_call>{"arguments":{"a":[{"name":"x"}]},"name":"get_\u0077eather"}</tool_call>)"),
            R"(|get_weather{"a":[{"name":"x"}]})");
  EXPECT_EQ(parse(tools(), R"(<tool_call>{"name":"add"}</tool_call>)"), "|add{}");
  EXPECT_EQ(parse(tools(), "<tool_call>" + one), call) << "whole without its end";
}

TEST(AnswerParser, WhatIsNoCallStaysContent) {
  for (const char* text : {
           "<tool_call>\nfoo</tool_call>\n",
           "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>",
           "<tool_call>{\"name\":\"add\",\"arguments\":[]}</tool_call>",
           "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}</tool_call>",
           "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":tru}}</tool_call>",
           "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"\n\"}}</tool_call>",
           "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1},\"extra\":1}</tool_call>",
           "<tool_call>{\"name\":\"add\",\"name\":\"add\",\"arguments\":{}}</tool_call>",
           "<tool_call>{\"arguments\":{}}</tool_call>",
           "<tool_call>{}</tool_call>",
           "<tool_call>[]</tool_call",
           "<tool_call>[1]",
           "  {\"a\": 1} ",
           "[1, 2]",
           "a <tool_call",
           "x < y\n <tool_call>\n",
           "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"",
           "{",
           "\n\n",
       })
    EXPECT_EQ(parse(tools(), text), text);
  const std::string good = R"(<tool_call>{"name":"add","arguments":{}}</tool_call>)";
  EXPECT_EQ(parse(tools(), "<tool_call>{oops}</tool_call>" + good), "<tool_call>{oops}</tool_call>|add{}")
      << "a broken call does not hide the next";
  EXPECT_EQ(parse(tools(), "<tool_call><tool_call>" + good), "<tool_call><tool_call>|add{}");
  std::string deep = "<tool_call>{\"name\":\"add\",\"arguments\":";
  for (int i = 0; i < 10'000; i++) deep += "{\"a\":";
  EXPECT_EQ(parse(tools(), deep), deep) << "A-HT-2";
}

TEST(AnswerParser, OneCallWhereParallelOnesAreNotAllowed) {
  AnswerSyntax one = tools();
  one.parallel_calls = false;
  const std::string call = R"(<tool_call>{"name":"add","arguments":{}}</tool_call>)";
  EXPECT_EQ(parse(one, call + "\n" + call), call + "|add{}");
  const std::string two = R"([{"name":"add"}, {"name":"add"}])";
  EXPECT_EQ(parse(one, two), two);
}

TEST(AnswerParser, Reasoning) {
  AnswerSyntax syntax = tools();
  syntax.reasoning = true;
  EXPECT_EQ(parse(syntax, "<think>\na < b\n</think>\n\nHi "), "think(a < b)Hi ");
  EXPECT_EQ(parse(syntax, "\nwell\n</think>\nHi", true), "think(well)Hi");
  EXPECT_EQ(parse(syntax, "<think>\n\n</think>\n\nHi"), "Hi");
  EXPECT_EQ(parse(syntax, "<think>cut </thi"), "think(cut </thi)");
  EXPECT_EQ(parse(syntax, "Hi <think>x</think>"), "Hi <think>x</think>") << "only at the beginning";
  const std::string call = R"(<tool_call>{"name":"add","arguments":{}}</tool_call>)";
  EXPECT_EQ(parse(syntax, "<think>" + call + "</think>" + call), "think(" + call + ")|add{}");
  EXPECT_EQ(parse(tools(), "<think>a</think>", true), "<think>a</think>") << "not asked for";
}

TEST(AnswerParser, AForcedCallIsSentWhileItGrows) {
  AnswerSyntax syntax = tools();
  syntax.only_calls = true;
  AnswerParser parser(syntax, false);
  std::vector<AnswerPart> parts;
  parser.feed("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": ", parts);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].kind, AnswerPart::Kind::kCallBegin);
  EXPECT_EQ(parts[1].text, "{\"a\": ");
  parser.feed("1}", parts);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].text, "1}");
  parser.feed("}\n</tool_call>", parts);
  parser.finish(parts);
  EXPECT_EQ(parts.size(), 3u);
  EXPECT_EQ(parse(syntax, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": "), "|add{\"a\": ")
      << "cut by max_tokens";
  EXPECT_EQ(parse(syntax, "<tool_call>\n{\"name\": \"ad"), "<tool_call>\n{\"name\": \"ad");
  const std::string whole = R"(<tool_call>{"name":"add"}</tool_call>)";
  EXPECT_EQ(parse(syntax, whole + "\n<tool_c"), "|add{}") << "what was cut off is no content";
  EXPECT_EQ(parse(syntax, whole + "\n<tool_call>\n{\"na"), "|add{}");
}

// Texts made of what markers and calls are made of.
std::string random_text(std::mt19937& random) {
  const char* pieces[] = {"<think>",
                          "</think>",
                          "<tool_call>",
                          "</tool_call>",
                          "[TOOL_CALLS]",
                          "<|python_tag|>",
                          R"({"name": "add", "arguments": {"a": "\"}x"}})",
                          R"({"name":"get_weather","parameters":{"a":[{}]}})",
                          R"([{"name":"add"},{"name":"add","arguments":{"b":-1.5e3}}])",
                          "{\"name\":\"add\",",
                          "\"arguments\":{",
                          "}",
                          "]",
                          "[",
                          "{",
                          "\"",
                          ";",
                          ",",
                          " ",
                          "\n",
                          "hello",
                          "<",
                          "tool_call",
                          "\xC3\xA9",
                          "1",
                          "null"};
  std::string text;
  for (size_t n = random() % 14; n > 0; n--) {
    const std::string piece = pieces[random() % std::size(pieces)];
    const size_t from = random() % 8 == 0 ? random() % piece.size() : 0;
    text += piece.substr(from, random() % 8 == 0 ? random() % piece.size() : piece.size());
  }
  return text;
}

TEST(AnswerParser, AnyCutGivesTheSameParts) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20'000; round++) {
    AnswerSyntax syntax = tools(tool_formats()[random() % tool_formats().size()].name);
    syntax.only_calls = random() % 2 == 0;
    syntax.parallel_calls = random() % 4 != 0;
    syntax.reasoning = random() % 2 == 0;
    const bool in_reasoning = random() % 4 == 0;
    const std::string text = random_text(random);
    ASSERT_EQ(parse_pieces(syntax, text, in_reasoning, random), parse(syntax, text, in_reasoning))
        << syntax.tools->name << ": " << text;
  }
}

}  // namespace
}  // namespace gapless
